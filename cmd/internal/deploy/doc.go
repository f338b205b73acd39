// Package deploy tests the files of deploy/ with real servers: permissions, TLS, credentials, and what programs print.
package deploy
