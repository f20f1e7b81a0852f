// Package laneclient is the client of Laneway's control plane.
package laneclient
