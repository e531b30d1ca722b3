# The frames of all threads, but for inlined ones and those that gdb infers from tail calls: "frame TID PC SIGNAL".
import gdb

gdb.execute("set backtrace past-main on")
gdb.execute("set backtrace past-entry on")
for thread in gdb.selected_inferior().threads():
    thread.switch()
    frame = gdb.newest_frame()
    while frame is not None and frame.is_valid():
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            print("frame %d %x %d" % (thread.ptid[1], frame.pc(), frame.type() == gdb.SIGTRAMP_FRAME))
        frame = frame.older()
