package demo

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane"
)

// promisedRoute is a route as it should be.
func promisedRoute(color lane.Name) Route {
	return Route{Color: color, Reply: Reply{Visits: Promised(color)}}
}

func instances(r Route) string {
	var names []string
	for _, v := range r.Visits {
		names = append(names, v.Instance)
	}
	return strings.Join(names, " ")
}

func TestPromisedPaths(t *testing.T) {
	t.Parallel()
	if got, want := instances(promisedRoute(Green)), "A1 B2 C1 D2 E1"; got != want {
		t.Errorf("green: got %s, want %s", got, want)
	}
	if got, want := instances(promisedRoute(lane.Baseline)), "A1 B1 C1 D1 E1"; got != want {
		t.Errorf("plain: got %s, want %s", got, want)
	}
}

// TestPromisedIsPicked: what is promised by hand is what the rules say of the
// instances that the demo starts.
func TestPromisedIsPicked(t *testing.T) {
	t.Parallel()
	in := lane.Input{Lanes: []lane.Lane{{Name: Green, Generation: 1, State: lane.Ready}}}
	for _, i := range Instances() {
		instance := &lane.Instance{
			Service: i.Service, Name: i.Name, Lane: i.Lane, State: lane.Ready,
			Endpoints: []lane.Endpoint{{Protocol: i.Protocol, Address: i.Name}},
		}
		if i.Lane != lane.Baseline {
			instance.Generation = 1
		}
		in.Instances = append(in.Instances, instance)
	}
	snapshot := lane.NewSnapshot(in)
	for _, color := range []lane.Name{Green, lane.Baseline} {
		for i, link := range Chain() {
			choice := lane.Pick(snapshot, link.Service, color, link.Protocol)
			if err := choice.Err(); err != nil {
				t.Fatal(err)
			}
			got := Visit{
				link.Service, choice.Targets[0].Name, choice.Lane, link.Protocol, choice.Color, choice.Reason,
			}
			if want := Promised(color)[i]; got != want || len(choice.Targets) != 1 {
				t.Errorf("%s request: picked %s of %d, promised is %s", colorName(color), got, len(choice.Targets), want)
			}
		}
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	if faults := Judge(promisedRoute(Green)); faults != nil {
		t.Errorf("a route as promised: got %q", faults)
	}
	for _, tt := range []struct {
		name   string
		change func(r *Route)
		want   []string // in each fault, in order
	}{
		{"baseline instead of lane", func(r *Route) {
			r.Visits[1].Instance, r.Visits[1].Lane = "B1", lane.Baseline
		}, []string{"hop 2: got B1 (service b, baseline) by grpc as green: lane-instance; promised is B2 (service b, lane green)"}},
		{"other reason", func(r *Route) { r.Visits[3].Reason = "" }, []string{"hop 4: got D2 (service d, lane green) by http as green: no reason"}},
		{"color lost on the way", func(r *Route) { r.Visits[4].Color = "" }, []string{"hop 5: got E1 (service e, baseline) by queue as plain"}},
		{"other protocol", func(r *Route) { r.Visits[2].Protocol = lane.HTTP }, []string{"hop 3: got C1 (service c, baseline) by http"}},
		{"chain cut short", func(r *Route) {
			r.Visits, r.Error = r.Visits[:3], "C1 could not call d: refused"
		}, []string{"hop 4: nobody reported it", "hop 5: nobody reported it", "green request: C1 could not call d: refused"}},
		{"chain too long", func(r *Route) { r.Visits = append(r.Visits, r.Visits[0]) }, []string{"hop 6: got A1"}},
		{"no answer", func(r *Route) { *r = Route{Color: Green} }, []string{"hop 1", "hop 2", "hop 3", "hop 4", "hop 5"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := promisedRoute(Green)
			tt.change(&r)
			faults := Judge(r)
			if len(faults) != len(tt.want) {
				t.Fatalf("got %q, want %d", faults, len(tt.want))
			}
			for i, want := range tt.want {
				if !strings.Contains(faults[i], want) {
					t.Errorf("fault %d: got %q, want %q in it", i, faults[i], want)
				}
			}
		})
	}
}

const arrows = `green  gateway ─http→ A1 ─grpc→ B2 ─thrift→ C1 ─http→ D2 ─queue→ E1
plain  gateway ─http→ A1 ─grpc→ B1 ─thrift→ C1 ─http→ D1 ─queue→ E1
`

const table = `REQUEST  SERVICE  INSTANCE  OF          CALLED BY  COLOR SEEN  WHY

green    a        A1        baseline    http       green       baseline-fallback
         b        B2        lane green  grpc       green       lane-instance
         c        C1        baseline    thrift     green       baseline-fallback
         d        D2        lane green  http       green       lane-instance
         e        E1        baseline    queue      green       baseline-fallback

plain    a        A1        baseline    http       plain       plain
         b        B1        baseline    grpc       plain       plain
         c        C1        baseline    thrift     plain       plain
         d        D1        baseline    http       plain       plain
         e        E1        baseline    queue      plain       plain
`

func TestTable(t *testing.T) {
	t.Parallel()
	routes := []Route{promisedRoute(Green), promisedRoute(lane.Baseline)}
	var b strings.Builder
	if err := WriteArrows(&b, routes, false); err != nil || b.String() != arrows {
		t.Errorf("%v; got\n%s\nwant\n%s", err, b.String(), arrows)
	}
	b.Reset()
	if err := WriteTable(&b, routes, false); err != nil || b.String() != table {
		t.Errorf("%v; got\n%s\nwant\n%s", err, b.String(), table)
	}
}

// TestTableInColor: without its colors it is the same text, and what the lane
// served is green.
func TestTableInColor(t *testing.T) {
	t.Parallel()
	routes := []Route{promisedRoute(Green), promisedRoute(lane.Baseline)}
	var b strings.Builder
	if err := WriteArrows(&b, routes, true); err != nil {
		t.Fatal(err)
	}
	if err := WriteTable(&b, routes, true); err != nil {
		t.Fatal(err)
	}
	got := b.String()
	if plain := strings.NewReplacer("\x1b[32m", "", "\x1b[0m", "").Replace(got); plain != arrows+table {
		t.Errorf("without colors: got\n%s", plain)
	}
	if !strings.Contains(got, "\x1b[32mB2\x1b[0m") || !strings.Contains(got, "\x1b[32mD2        \x1b[0m") ||
		strings.Contains(got, "\x1b[32mB1") {
		t.Errorf("got\n%q", got)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(NewReport([]Route{promisedRoute(lane.Baseline), {Color: Green}}))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"routes":[{"color":"","path":["A1","B1","C1","D1","E1"],"hops":[` +
		`{"service":"a","instance":"A1","protocol":"http","reason":"plain"},` +
		`{"service":"b","instance":"B1","protocol":"grpc","reason":"plain"},` +
		`{"service":"c","instance":"C1","protocol":"thrift","reason":"plain"},` +
		`{"service":"d","instance":"D1","protocol":"http","reason":"plain"},` +
		`{"service":"e","instance":"E1","protocol":"queue","reason":"plain"}]},` +
		`{"color":"green","path":[],"hops":[]}]}`
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}
