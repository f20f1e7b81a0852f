package lanehttp_test

import (
	"os"
	"testing"

	"github.com/laneway-dev/laneway/lane/lanetest"
)

func TestMain(m *testing.M) { os.Exit(lanetest.CheckMain(m)) }
