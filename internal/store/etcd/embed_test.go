package etcd_test

import (
	"testing"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/internal/store/etcd"
)

func TestOpenTwice(t *testing.T) {
	dir := t.TempDir()
	s, err := etcd.Open(t.Context(), etcd.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: "a", Value: []byte("1")}}})
	t.Log(r, err)
	_, err = etcd.Open(t.Context(), etcd.Config{Dir: dir})
	t.Log(err)
	t.Log(s.Close())
}
