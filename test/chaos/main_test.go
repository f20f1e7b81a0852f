// Package chaos has the proof on real processes: producers, consumers, replicas of the control
// plane and the message engine are killed, stopped and cut off from each other while messages
// are sent and groups are paused, and afterwards every message must have been handed out as the
// promises say.
//
// Consumers write down what they are handed, a line for each message by one write, so that a
// kill takes nothing of it. What there was to hand out is read from the engine at the end. A
// [consumetest.Ledger] judges. Producers write down what they are about to send, and that the
// engine has it: who comes after one that was killed sends what was in doubt again, with the
// same IDs. A seed decides which fault comes when; what comes of it differs from run to run.
//
//	go test ./test/chaos                                        # as CI does
//	go test ./test/chaos -short                                 # about a minute
//	go test ./test/chaos -timeout 2h -duration 20m -messages 1000000 -seed 7
package chaos

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/test/command"
)

var (
	durationFlag = flag.Duration("duration", 0, "how long there are faults at least; 0: 2m30s, with -short 1m")
	messagesFlag = flag.Int("messages", 0, "how many messages are sent at least; 0: 200,000, with -short 20,000")
	seedFlag     = flag.Uint64("seed", 1, "decides about the faults")
	patienceFlag = flag.Duration("patience", 90*time.Second, "how long after the faults nothing may happen until what is unsettled counts as lost")
	mutantsFlag  = flag.Int("mutants", 1, "how many broken variants of the protocol TestMutants runs")
	keepFlag     = flag.String("keep", "", "folder in which logs and ledgers are kept, also of a run that succeeds")
)

// modeVar makes this binary one of the processes under test, and settingsVar tells it of what
// it needs.
const (
	modeVar     = "CHAOS_MODE"
	settingsVar = "CHAOS_SETTINGS"
)

// built is the command under test, set by TestMain before any test runs.
var built string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	if mode := os.Getenv(modeVar); mode != "" {
		if err := be(mode); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	path, remove, err := command.Build("../..")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer remove()
	built = path
	return m.Run()
}

// be runs one of the processes under test.
func be(mode string) error {
	settings := []byte(os.Getenv(settingsVar))
	switch mode {
	case "consumer":
		var s consumerSettings
		if err := json.Unmarshal(settings, &s); err != nil {
			return err
		}
		return beConsumer(s)
	case "producer":
		var s producerSettings
		if err := json.Unmarshal(settings, &s); err != nil {
			return err
		}
		return beProducer(s)
	default:
		return fmt.Errorf("%s is none of the processes", mode)
	}
}
