package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/laneway-dev/laneway/internal/control"
	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/internal/store/mem"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// watched is a store that notes which partitions' cursors each transaction writes, and may
// refuse it.
type watched struct {
	store.Store

	mu     sync.Mutex
	shares [][]string
	refuse func(store.Txn) error
}

func (s *watched) Do(ctx context.Context, txn store.Txn) (store.Result, error) {
	var names []string
	for _, op := range txn.Ops {
		if name, ok := strings.CutPrefix(op.Key, "laneway/cursors/"); ok {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		s.mu.Lock()
		s.shares = append(s.shares, names)
		s.mu.Unlock()
		if s.refuse != nil {
			if err := s.refuse(txn); err != nil {
				return store.Result{}, err
			}
		}
	}
	return s.Store.Do(ctx, txn)
}

// startWatched runs a replica with a group and a session over a watched store.
func startWatched(t *testing.T) (*replica, *watched, string) {
	t.Helper()
	s := &watched{Store: mem.New()}
	r := startOver(t, s, control.Config{})
	t.Cleanup(func() {
		r.stop()
		_ = s.Close()
	})
	r.must(http.StatusCreated, nil, "PUT", "/v1/groups/billing", billing)
	return r, s, r.session(`{"ttl":"5m"}`).Name
}

// manyWrites are first writes of so many partitions, each with a note.
func manyWrites(session string, n int) (batch laneclient.CursorBatch) {
	for i := range n {
		w := laneclient.CursorBatchWrite{Name: laneclient.CursorName("main", "billing", "orders", i)}
		w.Record = json.RawMessage(held(session))
		w.Notes = []laneclient.NoteWrite{{Note: json.RawMessage(`{"v":1,"pos":7}`), Compare: i%2 == 0}}
		batch.Writes = append(batch.Writes, w)
	}
	return batch
}

func (r *replica) batch(session string, batch laneclient.CursorBatch) []laneclient.CursorAnswer {
	r.t.Helper()
	var a laneclient.CursorAnswers
	r.must(http.StatusOK, &a, "POST", "/v1/cursors:batch", batch, laneclient.SessionHeader, session)
	if len(a.Answers) != len(batch.Writes) {
		r.t.Fatalf("%d answers to %d writes", len(a.Answers), len(batch.Writes))
	}
	return a.Answers
}

// TestBatchSharesTransactions: a batch takes few transactions, and each of its writes is
// answered as if it had been made by itself.
func TestBatchSharesTransactions(t *testing.T) {
	t.Parallel()
	r, s, session := startWatched(t)
	batch := manyWrites(session, 100)
	for n, a := range r.batch(session, batch) {
		var c laneclient.Cursor
		r.must(http.StatusOK, &c, "GET", "/v1/cursors/"+batch.Writes[n].Name, nil)
		if a.Status != http.StatusOK || a.Revision != c.Revision || string(c.Record) != held(session) ||
			len(a.Notes) != 1 || len(c.Notes) != 1 || a.Notes[0].Revision != c.Notes[0].Revision || string(a.Notes[0].Note) != string(c.Notes[0].Note) {
			t.Errorf("write %d is answered %+v, and there is %+v", n, a, c)
		}
	}
	if len(s.shares) != 4 {
		t.Errorf("%d transactions for 100 writes, want 4", len(s.shares))
	}
	for _, names := range s.shares {
		slices.Sort(names)
		if len(slices.Compact(slices.Clone(names))) != len(names) {
			t.Errorf("a transaction writes %v", names)
		}
	}
}

// TestBatchWithAConflict: one write that does not hold keeps none of those from being made that
// share its transaction.
func TestBatchWithAConflict(t *testing.T) {
	t.Parallel()
	r, s, session := startWatched(t)
	batch := manyWrites(session, 64)
	batch.Writes[5].IfRevision = 3 // there is none
	for n, a := range r.batch(session, batch) {
		want := http.StatusOK
		if n == 5 {
			want = http.StatusPreconditionFailed
		}
		if a.Status != want {
			t.Errorf("write %d is answered %+v, want %d", n, a, want)
		}
	}
	if len(s.shares) != 2+32 {
		t.Errorf("%d transactions, want that of the others, and one that does not hold with its 32 by themselves", len(s.shares))
	}
}

// TestBatchOfOnePartition: of two first writes of a partition one finds the other's.
func TestBatchOfOnePartition(t *testing.T) {
	t.Parallel()
	r, _, session := startWatched(t)
	batch := manyWrites(session, 1)
	batch.Writes = append(batch.Writes, batch.Writes[0])
	answers := r.batch(session, batch)
	got := []int{answers[0].Status, answers[1].Status}
	slices.Sort(got)
	if !slices.Equal(got, []int{http.StatusOK, http.StatusPreconditionFailed}) {
		t.Errorf("answered %+v", answers)
	}
}

// TestBatchAtAStoreThatFails: where it is not known what became of a transaction, that holds for
// all that share it; where the store is full, what makes it smaller is done still.
func TestBatchAtAStoreThatFails(t *testing.T) {
	t.Parallel()
	r, s, session := startWatched(t)
	all := manyWrites(session, 40)
	s.refuse = func(txn store.Txn) error {
		if strings.HasSuffix(txn.Ops[0].Key, "/orders/0") {
			return fmt.Errorf("a test: %w", store.ErrUnavailable)
		}
		return nil
	}
	answers := r.batch(session, all)
	for n, a := range answers {
		if unknown := a.Status >= 500; unknown != (n < 32) {
			t.Errorf("write %d is answered %+v", n, a)
		}
	}
	if len(s.shares) != 2 {
		t.Errorf("%d transactions: what is in doubt is for the writer to make again", len(s.shares))
	}
	s.refuse = func(txn store.Txn) error {
		if slices.ContainsFunc(txn.Ops, func(op store.Op) bool { return !op.Delete }) {
			return store.ErrFull
		}
		return nil
	}
	all.Writes = all.Writes[38:]
	for n := range all.Writes {
		all.Writes[n].IfRevision = answers[38+n].Revision
	}
	all.Writes[1].Record, all.Writes[1].Notes = nil, []laneclient.NoteWrite{{Note: json.RawMessage(`null`)}}
	answers = r.batch(session, all)
	if answers[0].Status != http.StatusInsufficientStorage || answers[1].Status != http.StatusOK {
		t.Errorf("answered %+v by a store that is full", answers)
	}
}
