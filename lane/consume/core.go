package consume

// Core is the protocol for one process and one group. It is not for more than one goroutine
// at a time.
type Core struct{ cfg Config }

// NewCore makes a Core that holds nothing. The error is that of [Config.Validate].
func NewCore(cfg Config) (*Core, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Core{cfg: cfg.filled()}, nil
}

// Step takes one event and returns the actions that follow, in order. The slice and the
// actions are used again by the next Step.
func (c *Core) Step(e Event) []Action { return nil }
