package deploy

import "testing"

// A server on "::" takes both loopback addresses from one moment on. Where that moment
// falls between two tries, the process must still be known by 127.0.0.1.
func TestFirstListening(t *testing.T) {
	const v4, v6 = "127.0.0.1:80", "[::1]:80"
	for _, test := range []struct {
		name    string
		answers map[string][]bool // by address, in the order of the tries; then the last one
		want    string
	}{
		{"both", map[string][]bool{v4: {true}, v6: {true}}, v4},
		{"begins between the tries", map[string][]bool{v4: {false, true}, v6: {true}}, v4},
		{"IPv6 alone", map[string][]bool{v4: {false}, v6: {true}}, v6},
		{"nobody", map[string][]bool{v4: {false}, v6: {false}}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, ok := firstListening(80, func(address string) bool {
				left := test.answers[address]
				if len(left) > 1 {
					test.answers[address] = left[1:]
				}
				return left[0]
			})
			if got != test.want || ok != (test.want != "") {
				t.Errorf("got %q %v, want %q", got, ok, test.want)
			}
		})
	}
}
