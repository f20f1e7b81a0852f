package consumetest

import (
	"strings"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// Feature is something of the protocol, or of its surroundings, that a simulation has to come to.
type Feature string

// Features. The list is closed; [Coverage] counts each.
const (
	FeatureStrict      Feature = "dispatch to a strict lane"
	FeatureNoLane      Feature = "dispatch of a color without a lane"
	FeatureParent      Feature = "dispatch to a parent"
	FeatureOrdered     Feature = "dispatch in an ordered group"
	FeatureSecondGroup Feature = "dispatch in a second group"
	FeatureSecondTopic Feature = "dispatch of a second topic"
	FeatureRetry       Feature = "dispatch of a retry"
	FeatureGap         Feature = "offset passed over"
	FeatureFilter      Feature = "message filtered by the engine"
	FeatureNoBounds    Feature = "batch without bounds"
	FeatureForeign     Feature = "message that the group does not want"
	FeatureKnownCopy   Feature = "copy that the engine knows"
	FeatureCopy        Feature = "copy that the engine stores"
	FeatureGivenBack   Feature = "message given back"
	FeatureRecalled    Feature = "message given back unread"
	FeatureFailed      Feature = "message failed"
	FeaturePaused      Feature = "group paused"
	FeatureGrace       Feature = "member left with grace"
	FeatureLatest      Feature = "start at the end"
	FeatureTime        Feature = "start at a time"
	FeatureOffset      Feature = "start at an offset"
	FeatureBareEnd     Feature = "end without a baseline"
	FeatureDownInEnd   Feature = "end with a process down"
	FeatureSeveral     Feature = "news of the registry told at once"
	FeatureAnswers     Feature = "answers told at once"
	FeatureCalledOff   Feature = "reset called off"
	FeatureBurst       Feature = "many messages at once"
	FeatureBytes       Feature = "window of few bytes"
	FeatureFewMoves    Feature = "write of one to three moves at most"
	FeatureRoom        Feature = "dispatch in the partition's room"
	FeatureProbe       Feature = "probe beside a stuck lane"
	FeatureLostProbe   Feature = "probe without the registry"
	FeatureLost        Feature = "dispatch without the registry"
	FeatureSqueezed    Feature = "message between a fetch and a take"
	FeatureLateWord    Feature = "word of a consumer that has it no longer"
	FeatureRevived     Feature = "strict lane that comes again"
)

// Features lists all of them.
func Features() []Feature {
	return []Feature{
		FeatureStrict, FeatureNoLane, FeatureParent, FeatureOrdered, FeatureSecondGroup, FeatureSecondTopic, FeatureRetry,
		FeatureGap, FeatureFilter, FeatureNoBounds, FeatureForeign, FeatureKnownCopy, FeatureCopy, FeatureGivenBack, FeatureRecalled, FeatureFailed,
		FeaturePaused, FeatureGrace, FeatureLatest, FeatureTime, FeatureOffset, FeatureBareEnd, FeatureDownInEnd,
		FeatureSeveral, FeatureAnswers, FeatureCalledOff, FeatureBurst, FeatureBytes, FeatureFewMoves, FeatureRoom,
		FeatureProbe, FeatureLostProbe, FeatureLost,
		FeatureSqueezed, FeatureLateWord, FeatureRevived,
	}
}

// whys lists the moves by their reasons, but for one that a simulation does not come to: a
// process is always told what became of its takes.
func whys() []string {
	var all []string
	for kind, reasons := range map[consume.MoveKind][]consume.Why{
		consume.Create: {consume.WhyNewGroup, consume.WhyNewPart},
		consume.Take: {
			consume.WhyFree, consume.WhyGone, consume.WhyNewSession, consume.WhyCaretaker, consume.WhyStrictEnded,
		},
		consume.Release: {
			consume.WhyOwner, consume.WhyNoMember, consume.WhyBalance, consume.WhyBaseline, consume.WhyStopping,
			consume.WhyMainMoves, consume.WhyReset,
		},
		consume.Split:  {consume.WhyLaneMember, consume.WhyMessage, consume.WhyStalled},
		consume.Merge:  {consume.WhyMet},
		consume.Rewind: {consume.WhyReset},
	} {
		for _, w := range reasons {
			all = append(all, whyOf(kind, w))
		}
	}
	return all
}

func whyOf(kind consume.MoveKind, why consume.Why) string { return string(kind) + ": " + string(why) }

func buryReasons() []consume.BuryReason {
	return []consume.BuryReason{consume.BuryAttempts, consume.BuryStrictEnded, consume.BuryStrictUnknown}
}

// classOf is the kind of color that verdicts are counted by.
func classOf(color lane.Name) string {
	switch {
	case color == lane.Baseline:
		return "plain"
	case color == strictNone:
		return "strict without a lane"
	case strict(color):
		return "strict"
	case color == noLane:
		return "without a lane"
	case !color.Valid():
		return "that is no name"
	}
	return "ordinary"
}

func classes() []string {
	return []string{"plain", "ordinary", "without a lane", "strict", "strict without a lane", "that is no name"}
}

func (w *world) feature(f Feature) { w.result.Coverage.Features[f]++ }

// dispatched counts what a dispatch shows.
func (c *Coverage) dispatched(a *actor, cfg *consume.Config, d *consume.Dispatch) {
	for _, f := range []struct {
		Feature
		is bool
	}{
		{FeatureStrict, strict(d.Lane)},
		{FeatureNoLane, d.Color == noLane},
		{FeatureParent, d.Reason == lane.ReasonParent},
		{FeatureOrdered, cfg.Ordered},
		{FeatureSecondGroup, a.group > 0},
		{FeatureSecondTopic, strings.HasPrefix(d.Partition.Topic, "mails")},
		{FeatureRetry, d.Attempt > 0},
		{FeatureLost, a.lost},
		{FeatureBytes, cfg.WindowBytes > 0},
	} {
		if f.is {
			c.Features[f.Feature]++
		}
	}
}

// startFeature is that of a start that is not the usual one, or empty.
func startFeature(k consume.StartKind) Feature {
	switch k {
	case consume.StartLatest:
		return FeatureLatest
	case consume.StartTime:
		return FeatureTime
	case consume.StartOffset:
		return FeatureOffset
	case consume.StartEarliest:
	}
	return ""
}

// ended counts how a history ends, with so many processes down.
func (c *Coverage) ended(p *plan, t *truth, down int) {
	for g := range t.groups {
		for _, topic := range p.groups[g].Topics {
			if p.bareEnd && !t.serves(&t.groups[g], lane.Baseline, topic.Name) {
				c.Features[FeatureBareEnd]++
			}
		}
	}
	if p.downInEnd {
		c.Features[FeatureDownInEnd] += down
	}
}
