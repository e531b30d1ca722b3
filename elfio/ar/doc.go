// Package ar reads archives of GNU and BSD ar, and replaces members of them.
//
//	a, err := ar.Parse(b)
//	for i, m := range a.Members { data := a.Data(m) ... }
//	out, err := a.Replace(map[int]ar.Contents{i: changed})
//	_, err = out.WriteTo(w)
//
// Symbol indices follow the members' new places. A thin archive has the sizes of its members only; they are files of
// their own.
//
// # What is refused
//
// Headers that are none, names outside of the table of long names, indices that do not fit or name no member, and
// archives that would grow beyond what their index can address.
//
// # Hostile input
//
// Every offset and size is checked before use. Members are parts of the bytes given, and what is copied are headers and
// indices.
package ar
