package lane

import "context"

// colorKey is the context key of a color. The value is a *colored.
type colorKey struct{}

// colored is a context with a color; the zero Name there means "plain on purpose" and is
// not the same as no value. It is a type of its own because every request makes one:
// context.WithValue would take one allocation for itself and one for the Name.
type colored struct {
	context.Context //nolint:containedctx // it is one
	color           Name
}

// Value implements context.Context.
func (c *colored) Value(key any) any {
	if _, ours := key.(colorKey); ours {
		return c
	}
	return c.Context.Value(key)
}

// colorOf returns the color of ctx; ok is false where ctx says nothing of one.
func colorOf(ctx context.Context) (color Name, ok bool) {
	if c, ok := ctx.Value(colorKey{}).(*colored); ok {
		return c.color, true
	}
	return Baseline, false
}

// With returns a context that carries the color. What is sent with it is routed
// by that color. A color that is no lane name (see [Name.Valid]) is dropped and
// ctx is returned unchanged, so that garbage never travels on.
func With(ctx context.Context, color Name) context.Context {
	if !color.Valid() {
		return ctx
	}
	return &colored{ctx, color}
}

// Plain returns a context whose traffic is plain even where the process belongs
// to a lane (see [Outgoing]).
func Plain(ctx context.Context) context.Context {
	return &colored{ctx, Baseline}
}

// From returns the color of ctx, or the zero Name if it has none or is plain.
func From(ctx context.Context) Name {
	color, _ := colorOf(ctx)
	return color
}

// Outgoing returns the color that a call or message made with ctx carries: the
// color of ctx; where ctx says nothing, that of the process (its lane, zero for
// the baseline). A context of [Plain] gives the zero Name.
func Outgoing(ctx context.Context, process Name) Name {
	if color, ok := colorOf(ctx); ok {
		return color
	}
	return process
}

// Detach returns a context that keeps the values of ctx, color and trace among
// them, but neither its deadline nor its cancellation. Use it for work that
// outlives the request that caused it, and give that work a deadline of its own.
func Detach(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

// Go runs f in a new goroutine with [Detach](ctx), so that what f sends keeps
// the color and trace of the request that started it. The returned channel is
// closed when f has returned; a caller that wants to wait, waits for it. A panic
// in f is not recovered, as with a plain go statement.
func Go(ctx context.Context, f func(ctx context.Context)) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(Detach(ctx))
	}()
	return done
}
