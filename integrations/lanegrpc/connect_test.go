package lanegrpc_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"

	"github.com/laneway-dev/laneway/integrations/lanegrpc"
	"github.com/laneway-dev/laneway/lane"
)

// TestLazy has 200 lanes of which three are called.
func TestLazy(t *testing.T) {
	t.Parallel()
	d := newDirectory()
	servers := []*server{start(t, "base", "")}
	// One server stands for all lanes' instances but the first: it counts them together.
	shared := start(t, "shared", "")
	for i := range 200 {
		s := shared
		if i == 0 {
			s = start(t, "first", numbered(0))
			servers = append(servers, s)
			continue
		}
		copied := *s.Instance
		copied.Name, copied.Lane, copied.Generation = fmt.Sprintf("in-%d", i), numbered(i), 1
		servers = append(servers, &server{Instance: &copied, listener: s.listener})
	}
	d.set(servers...)
	conn := connect(t, d)
	t.Cleanup(func() { conn.Close() })
	client := grpc_testing.NewTestServiceClient(conn)
	for range 10 {
		conn.Connect() // must not connect to anybody
		wantAnswer(t, t.Context(), client, "base ")
		wantAnswer(t, lane.With(t.Context(), numbered(0)), client, "first lane-0")
		wantAnswer(t, lane.With(t.Context(), numbered(5)), client, "shared lane-5")
	}
	if a, b, c := servers[0].listener.accepted.Load(), servers[1].listener.accepted.Load(), shared.listener.accepted.Load(); a != 1 || b != 1 || c != 1 {
		t.Errorf("connections: %d to the baseline, %d to lane-0, %d to the 199 others; want one each", a, b, c)
	}
}

// TestOneCallOneConnection: a call that waited for a connection uses it.
func TestOneCallOneConnection(t *testing.T) {
	t.Parallel()
	d := newDirectory()
	servers := []*server{start(t, "o1", ""), start(t, "o2", ""), start(t, "o3", ""), start(t, "o4", "")}
	d.set(servers...)
	client := dial(t, d)
	if _, err := ask(t.Context(), client, ""); err != nil {
		t.Fatal(err)
	}
	made := int64(0)
	for _, s := range servers {
		made += s.listener.accepted.Load()
	}
	if made != 1 {
		t.Errorf("one call made %d connections", made)
	}
}

// TestSameSnapshot changes everything but the service's instances: connections stay.
func TestSameSnapshot(t *testing.T) {
	t.Parallel()
	d := newDirectory()
	base, green := start(t, "o1", ""), start(t, "o2", "green")
	d.set(base, green)
	client := dial(t, d)
	ctx := lane.With(t.Context(), "green")
	for i := range 50 {
		wantAnswer(t, t.Context(), client, "o1 ")
		wantAnswer(t, ctx, client, "o2 green")
		base.Weight = i // also a change, but none of the connection
		d.set(base, green)
	}
	if a, b := base.listener.accepted.Load(), green.listener.accepted.Load(); a != 1 || b != 1 {
		t.Errorf("%d and %d connections, want one each", a, b)
	}
}

// TestKilled stops a lane's instance without taking it out of the registry: its traffic
// does not go elsewhere, and comes back when it does.
func TestKilled(t *testing.T) {
	t.Parallel()
	d := newDirectory()
	base, green := start(t, "o1", ""), start(t, "o2", "green")
	d.set(base, green)
	client := dial(t, d)
	ctx := lane.With(t.Context(), "green")
	wantAnswer(t, ctx, client, "o2 green")
	address := green.Endpoints[0].Address
	green.grpc.Stop()
	for range 20 {
		got, err := ask(ctx, client, "")
		if err == nil {
			t.Fatalf("got %q from a lane whose only instance is dead", got)
		}
	}
	_, err := ask(ctx, client, "")
	wantStatus(t, err, codes.Unavailable, "o2")
	wantAnswer(t, t.Context(), client, "o1 ")

	waited := make(chan error, 1)
	go func() {
		got, err := ask(lane.With(context.Background(), "green"), client, "", grpc.WaitForReady(true))
		if err == nil && got != "o2 green" {
			err = fmt.Errorf("got %q", got)
		}
		waited <- err
	}()
	green.listen(t, address)
	if err := <-waited; err != nil {
		t.Errorf("wait-for-ready: %v", err)
	}
	wantAnswer(t, ctx, client, "o2 green")
}

// TestOneOfSeveralKilled has calls go on with the other instance. The one that was sent
// before the client saw the connection end may fail.
func TestOneOfSeveralKilled(t *testing.T) {
	t.Parallel()
	d := newDirectory()
	one, other := start(t, "o1", ""), start(t, "o2", "")
	d.set(one, other)
	client := dial(t, d)
	seen := map[string]bool{}
	until(t, "both serve", func() bool {
		got, err := ask(t.Context(), client, "")
		if err != nil {
			t.Fatal(err)
		}
		seen[got] = true
		return len(seen) == 2
	})
	one.grpc.Stop()
	failed := 0
	for range 50 {
		got, err := ask(t.Context(), client, "")
		switch {
		case err != nil:
			failed++
		case got != "o2 ":
			t.Fatalf("got %q, want the instance that is alive", got)
		}
	}
	if failed > 1 {
		t.Errorf("%d calls failed, want one at most", failed)
	}
}

func TestWaitForReady(t *testing.T) {
	t.Parallel()
	d := newDirectory()
	base, strict := start(t, "o1", ""), start(t, "o2", "strict-load")
	d.set(base)
	client := dial(t, d)
	ctx := lane.With(t.Context(), "strict-load")
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err := ask(short, client, "", grpc.WaitForReady(true))
	wantStatus(t, err, codes.DeadlineExceeded, "no instance of order in strict lane strict-load")
	answered := make(chan string, 1)
	go func() {
		got, err := ask(lane.With(context.Background(), "strict-load"), client, "", grpc.WaitForReady(true))
		answered <- fmt.Sprint(got, err)
	}()
	d.set(base, strict)
	if got := <-answered; got != "o2 strict-load<nil>" {
		t.Errorf("got %s", got)
	}
}

// blackHole accepts connections and says nothing.
func blackHole(t *testing.T, name string, in lane.Name) *server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	s := &server{Instance: &lane.Instance{
		Service: "order", Name: name, Lane: in, Room: "west", State: lane.Ready,
		Endpoints: []lane.Endpoint{{Protocol: lane.GRPC, Address: listener.Addr().String()}},
	}}
	return s
}

// TestUnansweredConnection: calls do not queue up behind an instance that lets nobody
// connect while another one is connected.
func TestUnansweredConnection(t *testing.T) {
	t.Parallel()
	d := newDirectory()
	alive := start(t, "o1", "")
	d.set(alive)
	client := dial(t, d)
	wantAnswer(t, t.Context(), client, "o1 ")
	d.set(alive, blackHole(t, "o2", ""))
	began := time.Now()
	for range 50 {
		wantAnswer(t, t.Context(), client, "o1 ")
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("50 calls took %v", took)
	}
}

// TestSpread checks that the balancer's policy reaches the calls.
func TestSpread(t *testing.T) {
	t.Parallel()
	for _, policy := range []lane.Policy{lane.RoundRobin, lane.LeastRequests} {
		d := newDirectory()
		heavy, light := start(t, "heavy", ""), start(t, "light", "")
		heavy.Weight = 3
		d.set(heavy, light)
		client := dial(t, d, lanegrpc.WithPolicy(policy))
		count := map[string]int{}
		for range 400 {
			got, err := ask(t.Context(), client, "")
			if err != nil {
				t.Fatal(err)
			}
			count[strings.TrimSpace(got)]++
		}
		if count["light"] < 60 || count["heavy"] < 220 {
			t.Errorf("policy %d: %v, want about 300 and 100", policy, count)
		}
	}
}

// TestChurn changes the registry under load: no call fails that has a living instance.
func TestChurn(t *testing.T) {
	t.Parallel()
	d := newDirectory()
	base := []*server{start(t, "o1", ""), start(t, "o2", "")}
	greens := []*server{start(t, "g1", "green"), start(t, "g2", "green"), start(t, "g3", "green")}
	d.set(base...)
	client := dial(t, d)
	var stop atomic.Bool
	var calls atomic.Int64
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			ctx := t.Context()
			if i%2 == 0 {
				ctx = lane.With(ctx, "green")
			}
			for !stop.Load() {
				got, err := ask(ctx, client, "")
				if err != nil {
					t.Errorf("call: %v", err)
					return
				}
				if i%2 == 1 && strings.HasPrefix(got, "g") {
					t.Errorf("a plain call got to %q", got)
				}
				calls.Add(1)
			}
		})
	}
	for i := range 60 {
		at := calls.Load()
		d.set(append(greens[:i%4:i%4], base[i%2])...)
		until(t, "calls go on", func() bool { return calls.Load() > at+20 || t.Failed() })
	}
	stop.Store(true)
	group.Wait()
}

// TestUnaryOutlivesItsInstance: a call in flight is answered though its instance left.
func TestUnaryOutlivesItsInstance(t *testing.T) {
	t.Parallel()
	d := newDirectory()
	base, green := start(t, "o1", ""), start(t, "o2", "green")
	d.set(base, green)
	client := dial(t, d, lanegrpc.WithDrain(0))
	answered := make(chan string, 1)
	ctx := lane.With(t.Context(), "green")
	go func() {
		got, err := ask(ctx, client, "hold")
		answered <- fmt.Sprint(got, err)
	}()
	<-green.holding
	d.set(base)
	wantAnswer(t, ctx, client, "o1 green")
	close(green.hold)
	if got := <-answered; got != "o2 green<nil>" {
		t.Errorf("the call in flight: %s", got)
	}
}

// TestFailing ejects an instance that says it cannot serve, and keeps one that fails in
// another way.
func TestFailing(t *testing.T) {
	t.Parallel()
	d := newDirectory()
	green := start(t, "g1", "green")
	d.set(start(t, "o1", ""), green)
	client := dial(t, d)
	ctx := lane.With(t.Context(), "green")
	for _, body := range []string{"unavailable", "internal"} {
		for range 10 {
			if got, err := ask(ctx, client, body); err == nil {
				t.Fatalf("%s: got %q", body, got)
			}
		}
		wantAnswer(t, ctx, client, "g1 green") // ejected or not, it is all that the lane has
	}
}

// TestClose closes with a stream, a call and a connection under way.
func TestClose(t *testing.T) {
	t.Parallel()
	d := newDirectory()
	base, green := start(t, "o1", ""), start(t, "o2", "green")
	d.set(base, green, blackHole(t, "o3", "strict-load"))
	conn := connect(t, d)
	client := grpc_testing.NewTestServiceClient(conn)
	stream := open(t, lane.With(t.Context(), "green"), client)
	talk(t, stream, "o2 green")
	d.set(base) // the stream drains
	ended := make(chan error, 2)
	for _, ctx := range []context.Context{t.Context(), lane.With(t.Context(), "strict-load")} {
		go func() {
			_, err := ask(ctx, client, "hold")
			ended <- err
		}()
	}
	<-base.holding
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-ended; err == nil {
			t.Error("a call outlived its ClientConn")
		}
	}
	if _, err := stream.Recv(); err == nil {
		t.Error("a stream outlived its ClientConn")
	}
	if n := d.Subscribers(); n != 0 {
		t.Errorf("%d subscriptions left", n)
	}
}
