package config

import (
	"regexp"
	"strings"
)

// hidden replaces a secret, as in net/url.
const hidden = "xxxxx"

var (
	serverStart = regexp.MustCompile(`(?:^|[\s,"'=(\[])[A-Za-z][\w+.-]*://`)
	loginInURL  = regexp.MustCompile(`(://(?:[^\s:@/]+:)?).*@`)
	// me:password@host, which nats.url accepts too
	bareLogin   = regexp.MustCompile(`((?:^|[\s,"'=(\[])[^\s:@/,"'=(\[]+:)[^\s/]\S*@`)
	afterServer = regexp.MustCompile(`(\b(?:nats|tls|wss?)://[^\s/?#"]+[/?#])[^\s"]+`)
)

// Redact hides passwords and tokens in the URLs of a text, and the path and query of NATS URLs. Errors repeat what the
// user typed, and the user may have typed a URL where none is expected.
func Redact(text string) string {
	var out strings.Builder
	from := 0
	for _, at := range serverStart.FindAllStringIndex(text, -1) {
		out.WriteString(redactServer(text[from:at[0]]))
		from = at[0]
	}
	out.WriteString(redactServer(text[from:]))
	return out.String()
}

// redactServer hides everything up to the last @, because a password may contain one.
func redactServer(text string) string {
	text = loginInURL.ReplaceAllString(text, "${1}"+hidden+"@")
	text = bareLogin.ReplaceAllString(text, "${1}"+hidden+"@")
	return afterServer.ReplaceAllString(text, "${1}"+hidden)
}
