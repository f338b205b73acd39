package config

import (
	"regexp"
	"strings"
)

// hidden stands where a secret was, as net/url writes it.
const hidden = "xxxxx"

var (
	serverBegins  = regexp.MustCompile(`(?:^|[\s,"'=(\[])[A-Za-z][\w+.-]*://`)
	loginOfURL    = regexp.MustCompile(`(://(?:[^\s:@/]+:)?).*@`)
	loginWithout  = regexp.MustCompile(`((?:^|[\s,"'=(\[])[^\s:@/,"'=(\[]+:)[^\s/]\S*@`) // me:password@host, which nats.url takes too
	behindAServer = regexp.MustCompile(`(\b(?:nats|tls|wss?)://[^\s/?#"]+[/?#])[^\s"]+`)
)

// Redact hides the passwords and tokens of the URLs in a text, and what stands behind the servers of NATS: an error
// repeats what was typed, also where no URL belongs.
func Redact(text string) string {
	var out strings.Builder
	from := 0
	for _, at := range serverBegins.FindAllStringIndex(text, -1) {
		out.WriteString(redactServer(text[from:at[0]]))
		from = at[0]
	}
	out.WriteString(redactServer(text[from:]))
	return out.String()
}

// redactServer hides all up to the last @, as a password may have one.
func redactServer(text string) string {
	text = loginOfURL.ReplaceAllString(text, "${1}"+hidden+"@")
	text = loginWithout.ReplaceAllString(text, "${1}"+hidden+"@")
	return behindAServer.ReplaceAllString(text, "${1}"+hidden)
}
