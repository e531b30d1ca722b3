// Package ar reads archives of GNU and BSD ar, and replaces their members.
//
//	a, err := ar.Parse(b)
//	for i, m := range a.Members { data := a.Data(m) ... }
//	out, err := a.Replace(map[int]ar.Contents{i: changed})
//	_, err = out.WriteTo(w)
//
// Symbol indices follow the members' new places. A thin archive holds only the sizes of its members, which are
// separate files.
//
// # What is refused
//
// Malformed headers, names outside the table of long names, symbol indices that do not fit or name no member, and
// archives that would grow beyond what their index can address.
//
// # Hostile input
//
// Every offset and size is checked before use. Members are sub-slices of the bytes given; only headers and indices
// are copied.
package ar
