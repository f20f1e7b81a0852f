package lanethrift

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/apache/thrift/lib/go/thrift"
)

// Limits of what is read from a peer, of requests and of answers. A peer that passes one
// loses its connection.
const (
	// MaxFrameBytes is the largest message that is read or written.
	MaxFrameBytes = 16 << 20

	// MaxDepth is how deep structs may be nested in a message; the Thrift libraries of
	// other languages stop at 64. Generated code reads a struct within a struct by a call
	// within a call, and puts a prefix before an error's text at each of them: a peer must
	// not decide how deep that goes, for Go ends a process whose stack has grown to a
	// gigabyte, and the texts alone cost the square of the depth.
	MaxDepth = 512

	// MaxAheadElements is by how much the elements that a message's lists, sets and maps
	// say they have may be more than the bytes that have come in. Generated code makes
	// room for what is said. It matters where the length of a message is not known before:
	// to unframed peers, for a list of more elements; and to compressed messages.
	MaxAheadElements = 1 << 18

	maxTransforms = 4   // of a THeader message; a compression takes 45 kB to undo
	maxHeaders    = 256 // of a call; each is a step on every way through its context
)

var (
	errTooLong    = fmt.Errorf("a message of more than %d bytes", MaxFrameBytes)
	errTransforms = fmt.Errorf("a message with more than %d transforms", maxTransforms)
)

// bounded is a protocol that reads messages within the limits. One goroutine uses it.
type bounded struct {
	thrift.TProtocol
	received func() int // bytes of the present message
	began    func()     // called when the beginning of a message has been read; may be nil
	depth    int
	elements int // that the present message says it has
}

// ReadMessageBegin implements thrift.TProtocol.
func (b *bounded) ReadMessageBegin(ctx context.Context) (string, thrift.TMessageType, int32, error) {
	b.depth, b.elements = 0, 0
	name, kind, seqID, err := b.TProtocol.ReadMessageBegin(ctx)
	if err == nil && b.began != nil {
		b.began()
	}
	return name, kind, seqID, err
}

// ReadStructBegin implements thrift.TProtocol.
func (b *bounded) ReadStructBegin(ctx context.Context) (string, error) {
	if b.depth++; b.depth > MaxDepth {
		return "", thrift.NewTProtocolExceptionWithType(thrift.DEPTH_LIMIT, errors.New("structs are nested too deep"))
	}
	return b.TProtocol.ReadStructBegin(ctx)
}

// ReadStructEnd implements thrift.TProtocol.
func (b *bounded) ReadStructEnd(ctx context.Context) error {
	b.depth--
	return b.TProtocol.ReadStructEnd(ctx)
}

// ReadListBegin implements thrift.TProtocol.
func (b *bounded) ReadListBegin(ctx context.Context) (thrift.TType, int, error) {
	of, n, err := b.TProtocol.ReadListBegin(ctx)
	return of, n, errors.Join(err, b.count(n))
}

// ReadSetBegin implements thrift.TProtocol.
func (b *bounded) ReadSetBegin(ctx context.Context) (thrift.TType, int, error) {
	of, n, err := b.TProtocol.ReadSetBegin(ctx)
	return of, n, errors.Join(err, b.count(n))
}

// ReadMapBegin implements thrift.TProtocol.
func (b *bounded) ReadMapBegin(ctx context.Context) (thrift.TType, thrift.TType, int, error) {
	of, to, n, err := b.TProtocol.ReadMapBegin(ctx)
	return of, to, n, errors.Join(err, b.count(n))
}

// count takes up the elements of one more list, set or map: each will take a byte at
// least.
func (b *bounded) count(n int) error {
	b.elements += max(n, 0)
	if b.elements > b.received()+MaxAheadElements {
		return thrift.NewTProtocolExceptionWithType(thrift.SIZE_LIMIT,
			fmt.Errorf("a message says that it has %d elements, and has %d bytes so far", b.elements, b.received()))
	}
	return nil
}

// boundedResult has an answer read within the limits. The client's own protocol stays
// what it is, since thrift looks for its headers by type.
type boundedResult struct {
	thrift.TStruct
	received func() int
}

// Read implements thrift.TStruct.
func (r boundedResult) Read(ctx context.Context, p thrift.TProtocol) error {
	return r.TStruct.Read(ctx, &bounded{TProtocol: p, received: r.received})
}

// frameGuard looks at the bytes of a THeader connection before thrift does and finds
// messages with too many transforms: thrift sets all of them up at once, however many the
// message says it has. It tells peers apart by the same rules as thrift.
type frameGuard struct {
	unframed bool
	left     int // bytes of the present frame that are still to come
	start    [frameStart]byte
	have     int // bytes of start
}

// frameStart is as much of a frame as must be seen: its length, the fixed part of a
// THeader (a mark, flags, a sequence number, the header's length) and the first two
// numbers of the header, of five bytes at most each: the protocol, and how many transforms.
const (
	frameLength = 4
	fixedHeader = 10
	frameStart  = frameLength + fixedHeader + 2*binary.MaxVarintLen32
)

// see looks at bytes as they come.
func (g *frameGuard) see(b []byte) error {
	for len(b) > 0 && !g.unframed {
		if g.left > 0 {
			n := min(g.left, len(b))
			g.left -= n
			b = b[n:]
			continue
		}
		n := copy(g.start[g.have:g.want()], b)
		g.have += n
		b = b[n:]
		if g.have == frameLength && bare(g.start[:]) {
			g.unframed = true
			return nil
		}
		if g.have >= frameLength && binary.BigEndian.Uint32(g.start[:]) > MaxFrameBytes {
			return errTooLong
		}
		if g.have < g.want() {
			continue
		}
		if err := checkStart(g.start[frameLength:g.have]); err != nil {
			return err
		}
		g.left = g.length() + frameLength - g.have
		g.have = 0
	}
	return nil
}

// want is how many bytes of a frame's start must be seen, as far as is known yet.
func (g *frameGuard) want() int {
	if g.have < frameLength {
		return frameLength
	}
	return min(frameStart, frameLength+g.length())
}

// length is that of the present frame.
func (g *frameGuard) length() int { return int(binary.BigEndian.Uint32(g.start[:])) }

// bare reports whether a message begins here, without a frame.
func bare(b []byte) bool {
	return binary.BigEndian.Uint32(b)&thrift.VERSION_MASK == thrift.VERSION_1 ||
		b[0] == thrift.COMPACT_PROTOCOL_ID && b[1]&thrift.COMPACT_VERSION_MASK == thrift.COMPACT_VERSION
}

// checkStart looks at what follows a frame's length. What is not complete or makes no
// sense is left for thrift to refuse.
func checkStart(b []byte) error {
	if len(b) < fixedHeader || binary.BigEndian.Uint32(b)&thrift.THeaderHeaderMask != thrift.THeaderHeaderMagic {
		return nil
	}
	b = b[fixedHeader:]
	_, n := binary.Uvarint(b)
	if n <= 0 || n > binary.MaxVarintLen32 {
		return errTransforms // written longer than it needs to be: to hide what follows
	}
	transforms, n := binary.Uvarint(b[n:])
	if n <= 0 || transforms > maxTransforms {
		return errTransforms
	}
	return nil
}
