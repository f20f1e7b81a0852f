package control

import (
	"strings"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// root begins every key of the registry, so that a cluster shared with other
// programs keeps them apart. The watch of a replica covers exactly this.
const root = "laneway/"

// ProbeKey is a key below root that nobody writes, for stores that ask for one where they
// want to know the revision alone.
const ProbeKey = root + "-"

// Keys beside the objects, which stand at root + kind + "/" + name. They change on
// their own schedule, so an object's revision moves only when its spec does.
const (
	usesPrefix        = root + "uses/"        // + lane: when it was last used
	healthPrefix      = root + "health/"      // + service/instance: result of the active check
	childrenPrefix    = root + "children/"    // + lane: touched by every creation of a child
	newcomersPrefix   = root + "newcomers/"   // + service: touched by every new instance
	generationsPrefix = root + "generations/" // + lane: last generation of a lane that was removed
	topicUsesPrefix   = root + "topicuses/"   // + topic: touched by every group that comes to name it
	membershipPrefix  = root + "membership/"  // + group: touched by every member that joins; gone while the group is being deleted
	tombstonesPrefix  = root + "tombstones/"  // + group: touched by every member that leaves a tombstone
	notesPrefix       = root + "notes/"       // + name of a partition's cursors + "/" + main, or "color/" and the color
	replicasPrefix    = root + "replicas/"    // + node: which replicas live; under their lease
	leaderKey         = root + "leader"       // the replica that runs the life of lanes; under its lease
)

// ref names an object: its kind and its path below the kind.
type ref struct {
	kind laneclient.Kind
	name string
}

func (r ref) key() string { return root + string(r.kind) + "/" + r.name }

// parseKey takes a key below root apart: "lanes/green" gives "lanes" and "green".
func parseKey(key string) (family, name string) {
	family, name, _ = strings.Cut(strings.TrimPrefix(key, root), "/")
	return family, name
}

func instanceRef(service, name string) ref {
	return ref{laneclient.KindInstances, service + "/" + name}
}

func laneRef(name string) ref { return ref{laneclient.KindLanes, name} }

func sessionRef(id string) ref { return ref{laneclient.KindSessions, id} }

func serviceRef(name string) ref { return ref{laneclient.KindServices, name} }

func topicRef(name string) ref { return ref{laneclient.KindTopics, name} }

func groupRef(name string) ref { return ref{laneclient.KindGroups, name} }

func memberRef(group, name string) ref {
	return ref{laneclient.KindMembers, group + "/" + name}
}

func cursorRef(name string) ref { return ref{laneclient.KindCursors, name} }

// noteKey is the key of the note of a cursor; color empty: of main. A lane may be called
// "main", hence the segment before a color.
func noteKey(cursors, color string) string {
	if color == "" {
		return notesPrefix + cursors + "/main"
	}
	return notesPrefix + cursors + "/color/" + color
}
