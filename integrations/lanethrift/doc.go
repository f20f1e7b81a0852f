// Package lanethrift will be documented by its owner.
package lanethrift
