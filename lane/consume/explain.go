package consume

import "github.com/laneway-dev/laneway/lane"

// Owner says to whom the messages of a color go by this view, for members of a group that
// read the topic: what decides where a [Core] runs, for those who explain it. topic is one of
// the group's own, not a retry topic, which counts as its origin. [Main] is the baseline's.
func (v *View) Owner(topic Topic, color lane.Name) Owner {
	return newAudience(v, &topic, nil).owner(color)
}
