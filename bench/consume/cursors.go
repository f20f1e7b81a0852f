package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-dev/laneway/bench/turns"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	manyGroup = "many"
	// moveClients have a session and requests of their own each; moveWriters of them move
	// cursors at once, so that a request has many moves.
	moveClients, moveWriters = 4, 100
	// samples of the registry's size are taken so many times in a run.
	samples = 8
)

// moves measures what moves of many cursors cost one control node: each is one transaction
// on a record, with a note, as a [consume.Core] makes them. A hand-over is a release and a
// take; an hour's equivalent has each cursor handed over once.
func moves(ctx context.Context, s settings) (kept bool, err error) {
	in, err := install(ctx, s)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, in.close()) }()
	if _, err := in.world(ctx, s); err != nil { // the engine is known from now on
		return false, err
	}
	m := &mover{in: in, colors: s.colors, records: max(1, s.cursors/(1+s.colors))}
	if err := m.open(ctx); err != nil {
		return false, err
	}
	began := time.Now()
	if err := m.each(ctx, m.create); err != nil {
		return false, err
	}
	database, log, err := in.bytes()
	if err != nil {
		return false, err
	}
	cursors := m.records * (1 + m.colors)
	fmt.Printf("\n%d cursors in %d records, made in %s; %d writers over %d clients; database %.1f MB, log %.1f MB\n",
		cursors, m.records, round(time.Since(began)), moveClients*moveWriters, moveClients, megabytes(database), megabytes(log))
	fmt.Printf("%12s %10s %14s %14s %14s %12s %12s\n", "moves", "moves/s", "server us/move", "writers us/move", "p99 of a move", "database MB", "log MB")
	for sample := range samples {
		if err := m.sample(ctx, (sample+1)*s.handovers/samples-sample*s.handovers/samples); err != nil {
			return false, err
		}
	}
	return true, nil
}

func megabytes(n int64) float64 { return float64(n) / 1e6 }

// mover moves cursors.
type mover struct {
	in              *installation
	clients         []*laneclient.Client
	sessions        []string
	records, colors int
	state           []movable
	moved           atomic.Int64
	next            int // the record at which the next sample begins
}

// movable is what the writer of a record knows of it.
type movable struct {
	record   *consume.Record
	revision uint64
	notes    map[lane.Name]uint64
	pos      int64
	cursor   int // the next one to be handed over
}

func (m *mover) open(ctx context.Context) error {
	engine, err := laneclient.FindEngine(ctx, m.in.api, "")
	if err != nil {
		return err
	}
	group := &laneclient.Group{Meta: laneclient.Meta{Name: manyGroup}, Engine: engine.Name, Topics: []string{manyGroup}}
	if _, err := laneclient.Put(ctx, m.in.api, group, laneclient.IfNoneMatch()); err != nil {
		return err
	}
	m.state = make([]movable, m.records)
	for range moveClients {
		c, err := laneclient.Dial(ctx, laneclient.Config{Control: []string{m.in.Control}})
		if err != nil {
			return err
		}
		m.in.stops = append(m.in.stops, c.Close)
		session, _ := c.Session()
		m.clients, m.sessions = append(m.clients, c), append(m.sessions, session)
	}
	return nil
}

// each does something for every record, many at once; a record is always the same client's.
func (m *mover) each(ctx context.Context, do func(ctx context.Context, record int) error) error {
	all := make([]int, m.records)
	for n := range all {
		all[n] = n
	}
	return m.some(ctx, all, do)
}

func (m *mover) some(ctx context.Context, records []int, do func(ctx context.Context, record int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for client := range moveClients {
		queue := make(chan int)
		wg.Go(func() {
			defer close(queue)
			for _, n := range records {
				if n%moveClients != client {
					continue
				}
				select {
				case queue <- n:
				case <-ctx.Done():
					return
				}
			}
		})
		for range moveWriters {
			wg.Go(func() {
				for n := range queue {
					if err := do(ctx, n); err != nil {
						cancel(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (m *mover) cursor(n int) lane.Name {
	if n == 0 {
		return consume.Main
	}
	return laneName(n)
}

// create makes a record with a holder for each cursor.
func (m *mover) create(ctx context.Context, n int) error {
	s, session := &m.state[n], m.sessions[n%moveClients]
	s.notes = map[lane.Name]uint64{}
	s.record = &consume.Record{Main: consume.Holder{Session: session}, Colors: map[lane.Name]consume.Entry{}}
	w := &consume.Write{IfRevision: 0, Record: s.record, Moves: []consume.Move{{Kind: consume.Create, Why: consume.WhyNewGroup}}}
	for i := range 1 + m.colors {
		c := m.cursor(i)
		if c != consume.Main {
			s.record.Colors[c] = consume.Entry{Holder: consume.Holder{Session: session, Lane: c}}
		}
		w.Notes = append(w.Notes, consume.NoteWrite{Cursor: c, Note: &consume.Note{}})
	}
	return m.write(ctx, n, w)
}

// handOver releases a cursor and takes it again, as two processes would.
func (m *mover) handOver(ctx context.Context, n int) error {
	s, session := &m.state[n], m.sessions[n%moveClients]
	c := m.cursor(s.cursor % (1 + m.colors))
	s.cursor++
	s.pos++
	err := m.write(ctx, n, &consume.Write{
		Record: s.with(c, consume.Holder{}), Moves: []consume.Move{{Kind: consume.Release, Cursor: c, Why: consume.WhyOwner}},
		Notes: []consume.NoteWrite{{Cursor: c, Note: &consume.Note{Pos: s.pos}, Compare: true, IfRevision: s.notes[c]}},
	})
	if err != nil {
		return err
	}
	return m.write(ctx, n, &consume.Write{
		Record: s.with(c, consume.Holder{Session: session, Lane: c}), Read: []lane.Name{c},
		Moves: []consume.Move{{Kind: consume.Take, Cursor: c, Lane: c, Why: consume.WhyFree}},
	})
}

// with is the record with another holder of a cursor.
func (s *movable) with(cursor lane.Name, h consume.Holder) *consume.Record {
	r := *s.record
	if cursor == consume.Main {
		r.Main = h
		return &r
	}
	r.Colors = maps.Clone(r.Colors)
	entry := r.Colors[cursor]
	entry.Holder = h
	r.Colors[cursor] = entry
	return &r
}

func (m *mover) write(ctx context.Context, n int, w *consume.Write) error {
	s := &m.state[n]
	w.Group, w.Session, w.IfRevision = manyGroup, m.sessions[n%moveClients], s.revision
	w.Partition = consume.Partition{Topic: manyGroup, Index: int32(n)}
	for {
		a, err := m.clients[n%moveClients].Move(ctx, w)
		switch {
		case errors.Is(err, consume.ErrDoubt) && ctx.Err() == nil:
			continue // repeated unchanged, as the protocol has it
		case err != nil:
			return err
		case a.Outcome != consume.Done && a.Record == nil, a.Outcome != consume.Done && a.Ended:
			return fmt.Errorf("a move of %s was refused: %v, session ended: %t", w.Partition, a.Outcome, a.Ended)
		}
		// A refusal after a doubt is the first copy, since nobody else writes.
		s.record, s.revision = w.Record, a.Revision
		for _, note := range a.Notes {
			s.notes[note.Cursor] = note.Revision
		}
		m.moved.Add(1)
		return nil
	}
}

// used is the processor time of the server and of this process so far.
func (m *mover) used() (server, own time.Duration, err error) {
	server, err = m.in.ProcessorTime()
	own, err2 := turns.ProcessorTime()
	return server, own, errors.Join(err, err2)
}

// sample hands over so many cursors, and prints a line.
func (m *mover) sample(ctx context.Context, handovers int) error {
	records := make([]int, handovers)
	for i := range records {
		records[i] = (m.next + i) % m.records
	}
	m.next = (m.next + handovers) % m.records
	var mu sync.Mutex
	var took []time.Duration
	busy := make([]sync.Mutex, m.records) // a record that comes again waits until its move before is done
	server, own, err := m.used()
	if err != nil {
		return err
	}
	began, before := time.Now(), m.moved.Load()
	err = m.some(ctx, records, func(ctx context.Context, n int) error {
		busy[n].Lock()
		defer busy[n].Unlock()
		from := time.Now()
		err := m.handOver(ctx, n)
		mu.Lock()
		defer mu.Unlock()
		took = append(took, time.Since(from)/2)
		return err
	})
	if err != nil {
		return err
	}
	moved, elapsed := m.moved.Load()-before, time.Since(began)
	serverNow, ownNow, err := m.used()
	if err != nil {
		return err
	}
	database, log, err := m.in.bytes()
	if err != nil {
		return err
	}
	fmt.Printf("%12d %10.0f %14.0f %14.0f %14s %12.1f %12.1f\n", m.moved.Load(), float64(moved)/elapsed.Seconds(),
		float64((serverNow-server).Microseconds())/float64(moved), float64((ownNow-own).Microseconds())/float64(moved),
		round(turns.Quantile(took, 0.99)), megabytes(database), megabytes(log))
	return nil
}
