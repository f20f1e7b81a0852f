package mem_test

import (
	"testing"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/internal/store/mem"
	"github.com/laneway-dev/laneway/internal/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return mem.New() })
}

func TestQuota(t *testing.T) {
	const quota = 4 << 20
	storetest.RunQuota(t, mem.New(mem.WithQuotaBytes(quota)), quota)
}
