//go:build linux

package launch

import (
	"os"

	"golang.org/x/sys/unix"
)

// LosesPrivileges tells whether a program would gain privileges from its file,
// but not while this process traces it (execve(2): no set-ID while traced by a
// process without CAP_SYS_PTRACE).
func LosesPrivileges(path string) bool {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil || HasCapability(unix.CAP_SYS_PTRACE) {
		return false
	}
	if nnp, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err == nil && nnp == 1 {
		return false
	}
	switch {
	case st.Mode&unix.S_ISUID != 0 && int(st.Uid) != os.Geteuid():
		return true
	case st.Mode&unix.S_ISGID != 0 && st.Mode&unix.S_IXGRP != 0 && int(st.Gid) != os.Getegid():
		return true
	}
	n, err := unix.Getxattr(path, "security.capability", nil)
	return err == nil && n > 0
}

// HasCapability tells whether this process has an effective capability.
func HasCapability(c uint) bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&hdr, &data[0]) != nil {
		return false
	}
	return data[c/32].Effective&(1<<(c%32)) != 0
}
