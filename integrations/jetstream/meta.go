package jetstream

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// HeaderMeta is the header that has what a message carries beside its value and color: a
// version byte and fields of known length, in base64. A message without it has none of that.
// Where that is too much for a header, the header has a + and its length, and the payload
// begins with it, before the value.
const HeaderMeta = "Laneway-Meta"

// maxMetaHeader is how big a block may be in a header; the server takes 64 KiB of headers.
const maxMetaHeader = 16 << 10

const (
	metaVersion = 1
	hasTime     = 1 << 0
	hasOrigin   = 1 << 1
	hasReplay   = 1 << 2 // of the origin
)

var errMeta = errors.New("malformed")

// pack gives the header and the payload of a message; an empty header: it needs none.
func pack(m *consume.Message) (header string, payload []byte) {
	switch block := encodeMeta(m); {
	case len(block) == 0:
		return "", m.Value
	case len(block) > maxMetaHeader:
		return "+" + strconv.Itoa(len(block)), append(block, m.Value...)
	default:
		return base64.RawStdEncoding.EncodeToString(block), m.Value
	}
}

// unpack is the reverse of pack. What is malformed changes nothing.
func unpack(header string, payload []byte, m *consume.Message) error {
	var block []byte
	if size, ok := strings.CutPrefix(header, "+"); ok {
		n, err := strconv.Atoi(size)
		if err != nil || n < 0 || n > len(payload) {
			return errMeta
		}
		block, payload = payload[:n:n], payload[n:]
	} else {
		var err error
		if block, err = base64.RawStdEncoding.DecodeString(header); err != nil {
			return errMeta
		}
	}
	if err := decodeMeta(block, m); err != nil {
		return err
	}
	m.Value = payload
	return nil
}

// encodeMeta gives the block of a message; empty: it needs none.
func encodeMeta(m *consume.Message) []byte {
	if len(m.Key) == 0 && len(m.Headers) == 0 && m.Time.IsZero() && m.Attempt == 0 && m.Origin == nil && m.Error == "" {
		return nil
	}
	var flags byte
	if !m.Time.IsZero() {
		flags |= hasTime
	}
	if m.Origin != nil {
		flags |= hasOrigin
		if m.Origin.Replay != "" || m.Origin.Only != lane.Baseline {
			flags |= hasReplay
		}
	}
	b := []byte{metaVersion, flags}
	text := func(s string) { b = append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	text(string(m.Key))
	b = binary.AppendVarint(b, int64(m.Attempt))
	text(m.Error)
	b = binary.AppendUvarint(b, uint64(len(m.Headers)))
	for _, h := range m.Headers {
		text(h.Name)
		text(string(h.Value))
	}
	if flags&hasTime != 0 {
		b = binary.AppendVarint(b, m.Time.UnixNano())
	}
	if o := m.Origin; o != nil {
		text(o.Partition.Topic)
		b = binary.AppendVarint(b, int64(o.Partition.Index))
		b = binary.AppendVarint(b, o.Offset)
		text(o.Group)
		text(string(o.Lane))
		if flags&hasReplay != 0 {
			text(o.Replay)
			text(string(o.Only))
		}
	}
	return b
}

// metaReader takes fields from a block; after the first that is malformed all are zero.
type metaReader struct {
	b   []byte
	bad bool
}

func (r *metaReader) advance(n int) {
	if n <= 0 || n > len(r.b) {
		r.b, r.bad = nil, true
		return
	}
	r.b = r.b[n:]
}

func (r *metaReader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	r.advance(n)
	return v
}

func (r *metaReader) int() int64 {
	v, n := binary.Varint(r.b)
	r.advance(n)
	return v
}

func (r *metaReader) bytes() []byte {
	n := r.uint()
	if r.bad || n > uint64(len(r.b)) {
		r.b, r.bad = nil, true
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	if n == 0 {
		return nil
	}
	return v
}

// decodeMeta sets what a block has. A block that is malformed sets nothing.
func decodeMeta(b []byte, m *consume.Message) error {
	if len(b) < 2 || b[0] != metaVersion {
		return errMeta
	}
	r := metaReader{b: b[2:]}
	key, attempt, failed := r.bytes(), r.int(), string(r.bytes())
	n := r.uint()
	if n > uint64(len(r.b))/2 { // each takes two bytes at least
		return errMeta
	}
	var headers []consume.Header
	if n > 0 {
		headers = make([]consume.Header, n)
	}
	for i := range headers {
		headers[i] = consume.Header{Name: string(r.bytes()), Value: r.bytes()}
	}
	at := m.Time
	if b[1]&hasTime != 0 {
		at = time.Unix(0, r.int())
	}
	var origin *consume.Origin
	if b[1]&hasOrigin != 0 {
		origin = &consume.Origin{Partition: consume.Partition{Topic: string(r.bytes()), Index: int32(r.int())}}
		origin.Offset = r.int()
		origin.Group = string(r.bytes())
		origin.Lane = lane.Name(r.bytes())
		if b[1]&hasReplay != 0 {
			origin.Replay = string(r.bytes())
			origin.Only = lane.Name(r.bytes())
		}
	}
	if r.bad || len(r.b) > 0 {
		return errMeta
	}
	m.Key, m.Attempt, m.Error, m.Headers, m.Time, m.Origin = key, int(attempt), failed, headers, at, origin
	return nil
}

// decode makes a message of what the log has. What somebody else put there, and what is
// malformed, is a message too: a reader must not stick at it.
func decode(p consume.Partition, offset int64, subject string, stored time.Time, h nats.Header, value []byte) *consume.Message {
	m := &consume.Message{Partition: p, Offset: offset, Color: colorOf(subject), Value: value, Time: stored}
	if block := h[HeaderMeta]; len(block) > 0 && unpack(block[0], value, m) == nil {
		return m
	}
	var names []string
	for name := range h {
		if !strings.HasPrefix(name, "Nats-") && name != HeaderMeta {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		for _, v := range h[name] {
			m.Headers = append(m.Headers, consume.Header{Name: name, Value: []byte(v)})
		}
	}
	return m
}
