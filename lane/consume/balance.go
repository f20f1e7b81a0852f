package consume

import "slices"

// claim is one cursor that is to be given to one of the sessions that can run it.
type claim struct {
	holder string // the session that has it now, or empty
	room   string // whose sessions are preferred; empty: none
	able   []seat // ascending by session
}

// balance gives each claim a session: the one that has it as long as nobody has two more
// than another who could take it; sessions of the claim's own room before others. Every
// process comes to the same result from the same claims, and nothing changes hands when
// nothing changed. A claim that nobody can run gets an empty session. The salt says who is
// first among those that have equally few.
func balance(claims []claim, salt uint32) []string {
	to := make([]string, len(claims))
	load := map[string]int{}
	for i := range claims {
		c := &claims[i]
		c.able = preferRoom(c.able, c.room)
		if c.holder != "" && slices.ContainsFunc(c.able, func(s seat) bool { return s.session == c.holder }) {
			to[i] = c.holder
			load[c.holder]++
		}
	}
	for i := range claims {
		if to[i] == "" && len(claims[i].able) > 0 {
			to[i] = leastLoaded(claims[i].able, load, salt)
			load[to[i]]++
		}
	}
	var of []seat // whose least is known
	var least string
	for even := false; !even; {
		even = true
		for i := len(claims) - 1; i >= 0; i-- {
			if to[i] == "" {
				continue
			}
			if able := claims[i].able; len(of) != len(able) || &of[0] != &able[0] {
				of, least = able, leastLoaded(able, load, salt)
			}
			if load[to[i]]-load[least] >= 2 {
				load[to[i]]--
				load[least]++
				to[i] = least
				even, of = false, nil
			}
		}
	}
	return to
}

// preferRoom leaves the sessions of a room, if it has any.
func preferRoom(able []seat, room string) []seat {
	if room == "" || !slices.ContainsFunc(able, func(s seat) bool { return s.room == room }) {
		return able
	}
	var in []seat
	for _, s := range able {
		if s.room == room {
			in = append(in, s)
		}
	}
	return in
}

// leastLoaded is the session that has the fewest cursors; of several, the first from the
// salt's place on.
func leastLoaded(able []seat, load map[string]int, salt uint32) string {
	first := int(salt % uint32(len(able)))
	least := able[first].session
	for i := range able {
		if s := able[(first+i)%len(able)]; load[s.session] < load[least] {
			least = s.session
		}
	}
	return least
}
