package main

import "github.com/laneway-dev/laneway/lane"

// reasonText says what a reason of a choice means. The guide on coloring has the
// same words.
func reasonText(reason string) string {
	switch lane.Reason(reason) {
	case lane.ReasonPlain:
		return "no color: the baseline serves"
	case lane.ReasonLane:
		return "the lane has an instance of its own"
	case lane.ReasonParent:
		return "the lane has no instance, a lane above it has"
	case lane.ReasonBaseline:
		return "neither the lane nor one above it has an instance: the baseline serves"
	case lane.ReasonUnknown:
		return "no such lane: routed as plain, the color is passed on"
	case lane.ReasonEnded:
		return "the lane is over: routed as plain, the color is passed on"
	case lane.ReasonStrict:
		return "the strict lane has an instance"
	case lane.ReasonStrictNo:
		return "the strict lane has no instance, and it never falls back: an error"
	case lane.ReasonNone:
		return "nobody serves: an error"
	}
	return ""
}

// withText is a reason with what it means.
func withText(reason string) string {
	if text := reasonText(reason); text != "" {
		return reason + " (" + text + ")"
	}
	return reason // of a newer control plane
}
