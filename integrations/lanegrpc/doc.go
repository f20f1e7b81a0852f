// Package lanegrpc will be documented by its owner.
package lanegrpc
