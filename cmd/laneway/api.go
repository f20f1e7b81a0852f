package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// callTimeout bounds one command's talk with the control plane.
const callTimeout = 15 * time.Second

// pageSize is how many objects a page of a list has.
const pageSize = 500

// api is the control plane as commands see it.
type api struct {
	*laneclient.API
	urls []string
}

func (a *app) api() *api {
	urls := a.controlURLs()
	return &api{urls: urls, API: laneclient.NewAPI(laneclient.Config{Control: urls, TokenFile: a.getenv(laneclient.EnvTokenFile)})}
}

// unreachable is a control plane that gave no answer.
type unreachable struct {
	urls []string
	err  error
}

func (e *unreachable) Error() string {
	return fmt.Sprintf("control plane not reachable at %s: start `laneway server`, or say where it is with --control or LANEWAY_CONTROL (%s)",
		strings.Join(e.urls, ", "), sentence(e.err))
}

func (e *unreachable) Unwrap() error { return e.err }

// call makes one call of the API. An error that is no answer tells how to reach
// the control plane.
func (c *api) call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return explainError(c.urls, c.Do(ctx, method, path, in, out))
}

func explainError(urls []string, err error) error {
	var none *laneclient.UnreachableError
	if !errors.As(err, &none) {
		return err
	}
	err = none.Err
	if call, ok := errors.AsType[*url.Error](err); ok {
		err = call.Err // without the URL, which has been named
	}
	return &unreachable{urls: urls, err: err}
}

// ofKind says of an object that is not there how to see what there is.
func ofKind(err error, word, name string) error {
	if !laneclient.IsNotFound(err) {
		return err
	}
	return fmt.Errorf("there is no %s %s: `laneway %s list` shows what there is", word, name, word)
}

// list returns all objects of a kind, page by page.
func list[T any](ctx context.Context, c *api, kind laneclient.Kind, query url.Values) ([]T, error) {
	out := []T{} // empty, not null, in JSON
	if query == nil {
		query = url.Values{}
	}
	query.Set("limit", fmt.Sprint(pageSize))
	for {
		var page laneclient.List
		if err := c.call(ctx, http.MethodGet, "/v1/"+string(kind)+"?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		for _, raw := range page.Items {
			var v T
			if err := json.Unmarshal(raw, &v); err != nil {
				return nil, fmt.Errorf("read %s: %w", kind, err)
			}
			out = append(out, v)
		}
		if page.Next == "" {
			return out, nil
		}
		query.Set("after", page.Next)
	}
}

// filter makes a query of what is not empty, given as pairs.
func filter(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}
