package lanehttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/lanehttp"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

// A service "shop" calls a service "order". Its code says nothing of lanes: the color
// comes in with the request, travels in the context, and goes out with the call.
func Example() {
	// Two instances of order: one in the baseline, one in lane green.
	order := func(name string) *httptest.Server {
		return httptest.NewServer(lanehttp.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s in color %q", name, lane.From(r.Context()))
		})))
	}
	baseline, green := order("order-1"), order("order-g")
	defer baseline.Close()
	defer green.Close()
	instance := func(name string, of lane.Name, s *httptest.Server) *lane.Instance {
		return &lane.Instance{Service: "order", Name: name, Lane: of, Endpoints: []lane.Endpoint{
			{Protocol: lane.HTTP, Address: strings.TrimPrefix(s.URL, "http://")},
		}}
	}
	// In a program: lc, err := laneclient.Dial(ctx, laneclient.FromEnv())
	lc := lanetest.NewDirectory([]lane.Lane{{Name: "green"}}, instance("order-1", "", baseline), instance("order-g", "green", green))

	client := &http.Client{Transport: lanehttp.Transport(nil, lc)}
	defer client.CloseIdleConnections()
	shop := httptest.NewServer(lanehttp.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://order/items", http.NoBody)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answer, err := client.Do(call)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer answer.Body.Close()
		_, _ = io.Copy(w, answer.Body)
	})))
	defer shop.Close()

	for _, color := range []string{"", "green", "blue"} {
		fmt.Println(visit(shop.URL, color))
	}
	// Output:
	// order-1 in color ""
	// order-g in color "green"
	// order-1 in color "blue"
}

// visit calls a URL as somebody from outside does.
func visit(url, color string) string {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return err.Error()
	}
	if color != "" {
		r.Header.Set(lane.Header, color)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}

func ExampleTagHost() {
	fmt.Println(lanehttp.TagHost("api.lane.localhost:7780", "green"))
	color, host := lanehttp.SplitHost("green--api.lane.localhost:7780")
	fmt.Println(color, host)
	// Output:
	// green--api.lane.localhost:7780
	// green api.lane.localhost:7780
}
