package control

import (
	"errors"
	"slices"
	"strings"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// CheckFields lists, by their paths, the fields of the JSON of an object that the
// control plane refuses to read: those that it does not know, and values of another
// type than is wanted, at most 32 of them. What is no JSON object is one mistake of the
// empty path. It asks nobody. A kind that there is none of has none.
func CheckFields(of laneclient.Kind, text []byte) []laneclient.FieldError {
	k := kindNamed(of)
	if k == nil {
		return nil
	}
	return faultsOf(decode(text, k.newObject()))
}

// CheckObject lists what the control plane refuses in the JSON of an object before it
// looks at any other: fields as by [CheckFields], the name ("service/name" of an
// instance), and values that no field can have; sorted by path, at most 32. It asks
// nobody; an object without a fault may still be refused for what is there or missing in
// the registry.
func CheckObject(of laneclient.Kind, name string, text []byte) []laneclient.FieldError {
	k := kindNamed(of)
	if k == nil {
		return nil
	}
	obj := k.newObject()
	if faults := faultsOf(decode(text, obj)); len(faults) > 0 {
		return faults
	}
	f := &faults{}
	if err := k.checkName(name); err != nil {
		f.add("name", "%s", err.Error())
	}
	k.check(obj, f)
	sortedFields(f.list)
	return f.list
}

// kindNames lists all kinds, for people.
func kindNames() string {
	var names []string
	for _, k := range kinds() {
		names = append(names, string(k.name))
	}
	return strings.Join(names, ", ")
}

func kindNamed(name laneclient.Kind) *kind {
	all := kinds()
	if n := slices.IndexFunc(all, func(k *kind) bool { return k.name == name }); n >= 0 {
		return all[n]
	}
	return nil
}

// faultsOf are the mistakes that an error of decode tells of.
func faultsOf(err error) []laneclient.FieldError {
	if err == nil {
		return nil
	}
	var p *laneclient.Problem
	if errors.As(err, &p) && len(p.Errors) > 0 {
		return p.Errors
	}
	return []laneclient.FieldError{{Detail: err.Error()}}
}
