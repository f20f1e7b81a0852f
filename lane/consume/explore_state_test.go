package consume

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unsafe"
)

// clone is a deep copy of what changes in a world.
func (w *exploreWorld) clone() *exploreWorld {
	c := *w
	c.firsts, c.terms, c.stored = maps.Clone(w.firsts), maps.Clone(w.terms), maps.Clone(w.stored)
	for i, p := range w.procs {
		n := *p
		n.reads, n.timers = maps.Clone(p.reads), maps.Clone(p.timers)
		if p.core != nil {
			n.core = cloneCore(p.core)
		}
		c.procs[i] = &n
	}
	return &c
}

// cloneCore copies a Core with all that it changes: structs of its own kind that it points
// to, maps and slices. What it shares by contract, such as records, messages and views, the
// copy shares, too.
func cloneCore(c *Core) *Core {
	k := copier{was: map[unsafe.Pointer]reflect.Value{}}
	return k.pointer(reflect.ValueOf(c)).Interface().(*Core)
}

// copier copies values by reflection, so that it need not be told of new fields.
type copier struct {
	was map[unsafe.Pointer]reflect.Value // copies by where the original is
}

// own are the types whose values a Core changes in place.
var own = map[reflect.Type]bool{
	reflect.TypeFor[Core](): true, reflect.TypeFor[partition](): true, reflect.TypeFor[run](): true,
}

func (k *copier) pointer(p reflect.Value) reflect.Value {
	if p.IsNil() || !own[p.Type().Elem()] {
		return p
	}
	at := p.UnsafePointer()
	if c, ok := k.was[at]; ok {
		return c
	}
	c := reflect.New(p.Type().Elem())
	k.was[at] = c
	c.Elem().Set(p.Elem())
	k.fields(c.Elem())
	return c
}

// fields makes what a struct holds its own.
func (k *copier) fields(s reflect.Value) {
	for _, i := range plans.of(s.Type()).deep {
		f := s.Field(i)
		if f.Kind() != reflect.Struct && f.IsNil() {
			continue
		}
		k.value(reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem())
	}
}

// plan says which fields of a struct are copied deeply, and which are written down.
type plan struct {
	deep  []int
	shown []shownField
}

type shownField struct {
	index int
	name  string
}

// planner remembers plans: looking at fields by reflection is dear.
type planner struct{ known sync.Map }

var plans planner

func (p *planner) of(t reflect.Type) *plan {
	if k, ok := p.known.Load(t); ok {
		return k.(*plan)
	}
	k := &plan{}
	for i := range t.NumField() {
		f := t.Field(i)
		switch f.Type.Kind() {
		case reflect.Pointer:
			if own[f.Type.Elem()] {
				k.deep = append(k.deep, i)
			}
		case reflect.Struct:
			if own[f.Type] {
				k.deep = append(k.deep, i)
			} else if n := p.of(f.Type); len(n.deep) > 0 && f.Type != reflect.TypeFor[Config]() {
				k.deep = append(k.deep, i)
			}
		case reflect.Map, reflect.Slice:
			if f.Name != "extra" && f.Type != reflect.TypeFor[[]Action]() && f.Type != reflect.TypeFor[[]Topic]() {
				k.deep = append(k.deep, i)
			}
		default:
		}
		if !passed[f.Name] && f.Type != reflect.TypeFor[[]Action]() {
			k.shown = append(k.shown, shownField{i, f.Name})
		}
	}
	p.known.Store(t, k)
	return k
}

func (k *copier) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(k.pointer(v))
	case reflect.Struct:
		k.fields(v)
	case reflect.Slice:
		if v.IsNil() {
			return
		}
		c := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(c, v)
		v.Set(c)
		for i := range c.Len() {
			if e := c.Index(i); e.Kind() == reflect.Pointer {
				k.value(e)
			}
		}
	case reflect.Map:
		if v.IsNil() {
			return
		}
		c := reflect.MakeMapWithSize(v.Type(), v.Len())
		for it := v.MapRange(); it.Next(); {
			e := it.Value()
			if e.Kind() == reflect.Pointer {
				e = k.pointer(e)
			}
			c.SetMapIndex(it.Key(), e)
		}
		v.Set(c)
	default:
	}
}

// hash is a number that is the same for worlds that nobody who lives in them can tell
// apart: revisions and IDs count by their order only.
func (w *exploreWorld) hash() uint64 {
	var x canon
	x.shown = map[unsafe.Pointer]int{}
	x.value(reflect.ValueOf(w).Elem(), "")
	return x.sum()
}

// canon writes values down one after the other. Of a world it does not write what does not
// change, and of a Core what no decision rests on.
type canon struct {
	out   []uint64
	ranks []int // where out has a number that counts by its order among its kind
	kinds []byte
	shown map[unsafe.Pointer]int
}

// ordered are the fields that count by their order: revisions, and what is numbered by one
// Core.
func ordered(name string) byte {
	switch name {
	case "revision", "Revision", "IfRevision", "noteRev", "viewed", "recorded", "lively", "reached":
		return 'r'
	case "ids", "id", "ID", "Run", "Write", "asked", "due":
		return 'i'
	}
	return 0
}

// passed are fields that no decision rests on.
var passed = map[string]bool{
	"cfg": true, "out.Action": true, "dispatched": true, "fetches": true, "noteEvery": true, "Attempt": true,
	"audiences": true, "aud": true, "topic": true, "nowhere": true, "byID": true, "log": true, "serves": true, "appends": true, "cold": true, "careless": true,
	"extra": true, "mainExtra": true, "Moves": true, "Why": true, "why": true, "Time": true, "p": true, "messages": true,
	"Group": true, "Message": true, "hint": true,
}

func (x *canon) put(n uint64) { x.out = append(x.out, n) }

func (x *canon) text(s string) {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	x.put(h)
}

func (x *canon) number(n uint64, name string) {
	if k := ordered(name); k != 0 && n != 0 {
		x.ranks = append(x.ranks, len(x.out))
		x.kinds = append(x.kinds, k)
	}
	x.put(n)
}

func (x *canon) value(v reflect.Value, name string) {
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			x.put(1)
		} else {
			x.put(0)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		x.number(uint64(v.Int()), name)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		x.number(v.Uint(), name)
	case reflect.String:
		x.text(v.String())
	case reflect.Pointer:
		x.pointer(v, name)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[Message]() {
			x.number(uint64(v.FieldByName("Offset").Int()), "")
			return
		}
		for _, f := range plans.of(v.Type()).shown {
			x.value(v.Field(f.index), f.name)
		}
	case reflect.Array, reflect.Slice:
		x.put(uint64(v.Len()))
		for i := range v.Len() {
			x.value(v.Index(i), name)
		}
	case reflect.Map:
		x.entries(v)
	case reflect.Interface, reflect.Func:
	default:
		panic("a state has a " + v.Kind().String())
	}
}

func (x *canon) pointer(v reflect.Value, name string) {
	if v.IsNil() {
		x.put(0)
		return
	}
	at := v.UnsafePointer()
	if n, ok := x.shown[at]; ok && own[v.Type().Elem()] {
		x.put(uint64(n) + 2)
		return
	}
	x.shown[at] = len(x.shown)
	x.put(1)
	x.value(v.Elem(), name)
}

// entries writes a map down in an order that does not depend on chance.
func (x *canon) entries(v reflect.Value) {
	keys := v.MapKeys()
	slices.SortFunc(keys, compareKeys)
	x.put(uint64(len(keys)))
	for _, k := range keys {
		name := ""
		if k.Kind() == reflect.Uint64 {
			name = "id" // a run or a write
		}
		x.value(k, name)
		x.value(v.MapIndex(k), "")
	}
}

func compareKeys(a, b reflect.Value) int {
	switch a.Kind() {
	case reflect.String:
		return strings.Compare(a.String(), b.String())
	case reflect.Uint64:
		return cmp.Compare(a.Uint(), b.Uint())
	case reflect.Int, reflect.Int32, reflect.Uint8:
		if a.CanInt() {
			return cmp.Compare(a.Int(), b.Int())
		}
		return cmp.Compare(a.Uint(), b.Uint())
	case reflect.Struct:
		for i := range a.NumField() {
			if c := compareKeys(a.Field(i), b.Field(i)); c != 0 {
				return c
			}
		}
		return 0
	default:
		panic("a map's key is a " + a.Kind().String())
	}
}

// sum replaces what counts by its order by its rank, and gives the hash of all.
func (x *canon) sum() uint64 {
	for _, kind := range []byte{'r', 'i'} {
		var all []uint64
		for i, at := range x.ranks {
			if x.kinds[i] == kind {
				all = append(all, x.out[at])
			}
		}
		slices.Sort(all)
		all = slices.Compact(all)
		for i, at := range x.ranks {
			if x.kinds[i] == kind {
				n, _ := slices.BinarySearch(all, x.out[at])
				x.out[at] = uint64(n) + 1
			}
		}
	}
	h := uint64(14695981039346656037)
	for _, n := range x.out {
		h = (h ^ n) * 1099511628211
		h ^= h >> 29 // FNV by words needs some mixing
	}
	return h
}
