package telemetry_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/internal/telemetry"
)

func TestLibraryLog(t *testing.T) {
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo} {
		var b bytes.Buffer
		log := telemetry.LibraryLog(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: level})))
		log.Printf("http: TLS handshake error from %s: EOF", "127.0.0.1:1")
		log.Printf("http: panic serving %s: oh", "127.0.0.1:1")
		got := b.String()
		peers := strings.Contains(got, `level=DEBUG msg=library error="http: TLS handshake error from 127.0.0.1:1: EOF"`)
		ours := strings.Contains(got, `level=ERROR msg=library error="http: panic serving 127.0.0.1:1: oh"`)
		if peers != (level == slog.LevelDebug) || !ours {
			t.Errorf("from %v on: got %s", level, got)
		}
	}
}
