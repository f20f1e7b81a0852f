package laneclient_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

func TestWriteAnswer(t *testing.T) {
	problem := laneclient.NewProblem(http.StatusNotFound, "no <b>")
	extended := struct {
		*laneclient.Problem

		More int `json:"more"`
	}{problem, 7}
	for name, tt := range map[string]struct {
		v               any
		media           string // that w has already
		want, wantMedia string
	}{
		"an object":           {map[string]string{"a": "<&>"}, "", `{"a":"<&>"}`, "application/json"},
		"an object of a type": {extended, laneclient.ProblemMediaType, `{"title":"Not Found","status":404,"detail":"no <b>","more":7}`, laneclient.ProblemMediaType},
		"a problem":           {problem, "application/x-ndjson", `{"title":"Not Found","status":404,"detail":"no <b>"}`, laneclient.ProblemMediaType},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			if tt.media != "" {
				w.Header().Set("Content-Type", tt.media)
			}
			laneclient.WriteAnswer(w, http.StatusNotFound, tt.v)
			if got := w.Body.String(); got != tt.want+"\n" || w.Code != http.StatusNotFound || w.Header().Get("Content-Type") != tt.wantMedia {
				t.Errorf("%d %s %s, want 404 %s %s", w.Code, w.Header().Get("Content-Type"), got, tt.wantMedia, tt.want)
			}
		})
	}
}
