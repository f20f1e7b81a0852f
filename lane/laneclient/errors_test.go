package laneclient_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// silent is a control plane that never answers.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestErrorsOfCalls: what the documentation of Doer says of the errors that are no answer.
func TestErrorsOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := laneclient.NewAPI(laneclient.Config{Control: []string{"http://one.invalid", "http://two.invalid"}, Transport: silent{}})
		defer api.Close()
		for want, f := range map[error]func() (context.Context, context.CancelFunc){
			context.DeadlineExceeded: func() (context.Context, context.CancelFunc) { return t.Context(), func() {} },
			context.Canceled: func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				return ctx, cancel
			},
		} {
			ctx, cancel := f()
			began := time.Now()
			_, err := laneclient.Put(ctx, api, &laneclient.Lane{Meta: laneclient.Meta{Name: "green"}})
			cancel()
			var unreachable *laneclient.UnreachableError
			if !errors.As(err, &unreachable) || !errors.Is(err, want) {
				t.Errorf("%v, want one that nobody answered because of %v", err, want)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("took %v", took)
			}
		}
		if err := api.Do(t.Context(), http.MethodPut, "/v1/lanes/green", make(chan int), nil); err == nil {
			t.Error("a channel was written as JSON")
		}
	})
	nowhere := laneclient.NewAPI(laneclient.Config{Control: []string{"not a URL"}})
	var unreachable *laneclient.UnreachableError
	if _, err := laneclient.Get[laneclient.Lane](t.Context(), nowhere, "green"); err == nil || errors.As(err, &unreachable) {
		t.Errorf("%v, want the mistake in the URL", err)
	}
}
