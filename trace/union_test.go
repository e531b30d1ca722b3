package trace

import "testing"

// TestUnion: functions of two traces are one if their names are, whatever their ids.
func TestUnion(t *testing.T) {
	var u Union
	a, b := new(Trace), new(Trace)
	first := []FuncStat{
		{Func: FuncID{0, 1}, Name: "f", Calls: 1, Total: 10, Self: 10, Sum: 10, Running: 4, Waiting: 6},
		{Func: FuncID{1, 1}, Name: "g", Calls: 1, Total: 5, Self: 5, Sum: 5, Running: 5},
		{Func: FuncID{SyscallImage, 1}, Name: "sys_write", Calls: 2},
	}
	second := []FuncStat{
		{Func: FuncID{0, 1}, Name: "g", Calls: 3, Total: 30, Self: 30, Sum: 30, Running: 10, Waiting: 20},
		{Func: FuncID{SyscallImage, 1}, Name: "sys_write", Calls: 1},
	}
	u.Rows(a, first)
	u.Rows(b, second)
	rows := JoinRows(append(first, second...))
	if len(rows) != 3 {
		t.Fatalf("%d rows: %+v", len(rows), rows)
	}
	g, f, write := rows[0], rows[1], rows[2]
	if g.Name != "g" || g.Calls != 4 || g.Total != 35 || g.Running != 15 || g.Waiting != 20 {
		t.Errorf("g: %+v", g)
	}
	if f.Name != "f" || f.Calls != 1 || f.Waiting != 6 || write.Calls != 3 || write.Func.Image != SyscallImage {
		t.Errorf("f: %+v, write: %+v", f, write)
	}
	if tr, id := u.Origin(g.Func); tr != a || id != (FuncID{1, 1}) {
		t.Errorf("g is of %p, %v", tr, id)
	}
	if tr, _ := u.Origin(FuncID{0, 99}); tr != nil {
		t.Error("a function that nobody has is of a trace")
	}
}
