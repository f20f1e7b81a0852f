// Package laneotel will be documented by its owner.
package laneotel
