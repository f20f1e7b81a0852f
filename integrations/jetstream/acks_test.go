package jetstream

import "testing"

// TestAcks: only the server's plain words for an append that took place are known without
// being read as JSON; whatever else comes is.
func TestAcks(t *testing.T) {
	l := newLog("lw", "orders", "i1", 3)
	plain := `{"stream":"` + l.stream + `","seq":17}`
	if !l.acks([]byte(plain)) {
		t.Errorf("%s is not known", plain)
	}
	for answer, fails := range map[string]bool{
		`{"stream":"` + l.stream + `","seq":17,"duplicate":true}`:                           false,
		`{"stream":"` + l.stream + `","seq":0}`:                                             true,
		`{"stream":"` + l.stream + `","seq":}`:                                              true,
		`{"stream":"` + l.stream + `","seq":-1}`:                                            true,
		`{"stream":"` + l.stream + `","seq":17`:                                             true,
		`{"stream":"another","seq":17}`:                                                     false,
		`{"error":{"code":503,"err_code":10077,"description":"no"},"stream":"x","seq":0}`:   true,
		`{"stream":"` + l.stream + `","seq":17,"error":{"code":503,"description":"worse"}}`: true,
		``:  true,
		`{`: true,
	} {
		if l.acks([]byte(answer)) {
			t.Errorf("%q is taken for a plain answer", answer)
		}
		if err := readAck([]byte(answer)); (err != nil) != fails {
			t.Errorf("%q: %v", answer, err)
		}
	}
}
