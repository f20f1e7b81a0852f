package lane

import "context"

// Directory is what routing code needs from a control-plane client: laneclient's
// Client is one, lanetest's another. All methods may be called at once.
type Directory interface {
	// Snapshot returns the present picture. It takes no lock and is never nil.
	Snapshot() *Snapshot
	// Need makes the snapshot hold the instances of a service from now on, and
	// returns once it does. Calls after the first return at once. It returns the
	// context's error if that ends first, and nil where the control plane cannot be
	// reached but an older picture of the service is at hand.
	Need(ctx context.Context, service string) error
	// Subscribe calls changed, from a goroutine of the directory and never twice at
	// once, after every new snapshot, until cancel is called. changed must not
	// block. cancel returns when no call is under way; it must not be called from
	// within changed.
	Subscribe(changed func()) (cancel func())
	// Process is the lane of this process; zero: the baseline.
	Process() Name
	// Used notes that a color was just used, which keeps its lane from expiring.
	// It takes no lock and does no I/O. The zero Name and names that are malformed
	// are passed over.
	Used(color Name)
}
