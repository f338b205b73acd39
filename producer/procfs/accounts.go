package procfs

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// passwdFiles lists where the host's user names are, best first. In a container that shares the host's pids,
// /etc/passwd is the container's own.
var passwdFiles = []string{HostRoot + "/etc/passwd", "/etc/passwd"}

// Accounts maps user ids to names by the host's passwd file. It reads the file again after it changed.
type Accounts struct {
	size  int64
	time  time.Time
	names map[uint32]string
}

// Name returns the name of a uid, "" when it has none.
func (a *Accounts) Name(uid uint32) string {
	a.refresh(passwdFiles)
	return a.names[uid]
}

// UID returns the uid of a user.
func (a *Accounts) UID(name string) (uid uint32, ok bool) {
	a.refresh(passwdFiles)
	for uid, n := range a.names {
		if n == name {
			return uid, true
		}
	}
	return 0, false
}

func (a *Accounts) refresh(files []string) {
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		if a.names != nil && info.ModTime().Equal(a.time) && info.Size() == a.size {
			return
		}
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		a.time, a.size, a.names = info.ModTime(), info.Size(), passwdNames(string(b))
		return
	}
}

// passwdNames parses lines "name:x:uid:…". If a uid has several names the first one counts, as in libc.
func passwdNames(passwd string) map[uint32]string {
	names := map[uint32]string{}
	for line := range strings.Lines(passwd) {
		fields := strings.Split(line, ":")
		if len(fields) < 7 || fields[0] == "" {
			continue
		}
		uid, err := strconv.ParseUint(fields[2], 10, 32)
		if err != nil {
			continue
		}
		if _, named := names[uint32(uid)]; !named {
			names[uint32(uid)] = fields[0]
		}
	}
	return names
}
