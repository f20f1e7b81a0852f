package store

import (
	"context"
	"time"
)

const (
	// FeedBuffer is how many batches wait for the reader of a watch before its sender
	// does.
	FeedBuffer = 16
	// feedPoll is how often a sender looks whether its slow reader has taken a batch.
	feedPoll = 5 * time.Millisecond
)

// Feed is the sending end of a watch, for implementations of [Store]. One goroutine
// uses it. The place of the last batch is kept free for it, so that a reader
// always learns why its watch ended and [Feed.End] never waits for it.
type Feed struct {
	ctx     context.Context //nolint:containedctx // the watch's: the feed is as long-lived as it
	closing <-chan struct{}
	batches chan Batch
}

// NewFeed makes the feed of a watch that ends with ctx, or when closing, which the
// store closes, is closed.
func NewFeed(ctx context.Context, closing <-chan struct{}) *Feed {
	return &Feed{ctx: ctx, closing: closing, batches: make(chan Batch, FeedBuffer+1)}
}

// C is what [Store.Watch] returns.
func (f *Feed) C() <-chan Batch { return f.batches }

// Send delivers a batch, waiting while [FeedBuffer] of them have not been read. It
// is false if the watch has ended meanwhile: then nothing was sent.
func (f *Feed) Send(b Batch) bool {
	if len(f.batches) < FeedBuffer { // only this goroutine adds to it
		f.batches <- b
		return true
	}
	poll := time.NewTicker(feedPoll)
	defer poll.Stop()
	for len(f.batches) >= FeedBuffer {
		select {
		case <-poll.C:
		case <-f.closing:
			return false
		case <-f.ctx.Done():
			return false
		}
	}
	f.batches <- b
	return true
}

// End delivers the last batch and closes the channel. A nil err stands for what
// ended the watch from outside: its context or the store's close.
func (f *Feed) End(err error) {
	if err == nil {
		err = ErrClosed
		if e := f.ctx.Err(); e != nil {
			err = e
		}
	}
	f.batches <- Batch{Err: err}
	close(f.batches)
}
