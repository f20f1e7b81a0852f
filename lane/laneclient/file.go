package laneclient

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	fileVersion  = 1
	maxFileBytes = 512 << 20 // a view that is larger is not written, a file not read
	saveEvery    = time.Second
)

// savedView is the form of Config.SnapshotFile.
type savedView struct {
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"` // of View's bytes, in hex
	View    json.RawMessage `json:"view"`
}

type savedContent struct {
	Saved     time.Time           `json:"saved"`
	Revision  uint64              `json:"revision"`
	Lanes     map[string]*Lane    `json:"lanes"`
	Services  map[string]*Service `json:"services"`
	Instances []*Instance         `json:"instances"`
	Routes    []Route             `json:"routes"`
	Rules     []Rule              `json:"rules"`
}

// errFile says that a snapshot file is not to be used.
var errFile = errors.New("the file is not a whole snapshot of this version")

// encodeView writes a view as it is kept on disk.
func encodeView(v *View, now time.Time) ([]byte, error) {
	c := savedContent{
		Saved: now, Revision: v.Revision, Routes: v.Routes, Rules: v.Rules,
		Lanes: maps.Collect(v.Lanes.All()), Services: maps.Collect(v.Services.All()),
		Instances: make([]*Instance, 0, v.Instances.Len()),
	}
	for _, i := range v.Instances.All() {
		c.Instances = append(c.Instances, i)
	}
	slices.SortFunc(c.Instances, func(a, b *Instance) int { return strings.Compare(FullName(a), FullName(b)) })
	content, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode the view: %w", err)
	}
	sum := sha256.Sum256(content)
	data, err := json.Marshal(savedView{Version: fileVersion, SHA256: hex.EncodeToString(sum[:]), View: content})
	if err != nil {
		return nil, fmt.Errorf("encode the view: %w", err)
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("the view has %d bytes; at most %d are kept on disk", len(data), maxFileBytes)
	}
	return data, nil
}

// decodeView reads what encodeView wrote, into a model. Anything else is errFile.
func decodeView(data []byte) (*model, error) {
	var s savedView
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("%w: %w", errFile, err)
	}
	if s.Version != fileVersion {
		return nil, fmt.Errorf("%w: it has version %d, this program reads %d", errFile, s.Version, fileVersion)
	}
	if sum := sha256.Sum256(s.View); hex.EncodeToString(sum[:]) != s.SHA256 {
		return nil, fmt.Errorf("%w: its checksum is wrong", errFile)
	}
	var c savedContent
	if err := json.Unmarshal(s.View, &c); err != nil {
		return nil, fmt.Errorf("%w: %w", errFile, err)
	}
	m := newModel("", "")
	m.seen, m.complete = c.Revision, c.Revision
	for name, l := range c.Lanes {
		if l != nil {
			m.lanes.Put(name, l)
		}
	}
	for name, s := range c.Services {
		if s != nil {
			m.services.Put(name, s)
		}
	}
	for _, i := range c.Instances {
		if i != nil {
			m.putInstance(FullName(i), i)
		}
	}
	for n := range c.Routes {
		m.routes[c.Routes[n].Name] = &c.Routes[n]
	}
	for n := range c.Rules {
		m.rules[c.Rules[n].Name] = &c.Rules[n]
	}
	m.markAll()
	return m, nil
}

// readFile lets the viewer begin with the view on disk. A file that cannot be used
// is passed over, and said in Status: the control plane knows better anyway.
func (c *Client) readFile(ctx context.Context, v *viewer) {
	path := c.cfg.SnapshotFile
	m, err := loadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		err = fmt.Errorf("read the snapshot in %s: %w", path, err)
		c.noteErr(err)
		c.log.WarnContext(ctx, "snapshot file is not used", "path", path, "error", err)
		return
	}
	v.model, v.fromFile = m, true
	v.publish(ctx)
	c.log.InfoContext(ctx, "snapshot file is read", "path", path, "revision", m.complete)
}

func loadFile(path string) (*model, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := readBounded(f, maxFileBytes)
	if err != nil {
		return nil, err
	}
	return decodeView(data)
}

// saver keeps the last view on disk. One goroutine runs it.
type saver struct {
	path   string
	wake   chan struct{} // the view's content has changed
	failed bool          // the last write
}

func (s *saver) run(ctx context.Context, c *Client) {
	pause := time.NewTimer(saveEvery)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
			s.keep(ctx, c)
		}
		pause.Reset(saveEvery) // at most one in saveEvery
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// flush writes what has changed since the last write. It is called when all else has
// ended.
func (s *saver) flush(ctx context.Context, c *Client) {
	select {
	case <-s.wake:
		s.keep(ctx, c)
	default:
	}
}

func (s *saver) keep(ctx context.Context, c *Client) {
	err := s.save(c.View())
	if err != nil {
		c.noteErr(err)
	}
	if err != nil && !s.failed {
		c.log.WarnContext(ctx, "snapshot file is not written: a restart without the control plane would know less", "path", s.path, "error", err)
	}
	s.failed = err != nil
}

// save replaces the file in one step: whoever reads it finds the old or the new.
func (s *saver) save(v *View) error {
	if v.FromFile {
		return nil
	}
	data, err := encodeView(v, time.Now())
	if err != nil {
		return err
	}
	return replaceFile(s.path, data)
}

func replaceFile(path string, data []byte) (err error) {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	f, err := os.CreateTemp(dir, "."+base+".*")
	if err != nil {
		return fmt.Errorf("write the snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
			err = fmt.Errorf("write the snapshot: %w", err)
		}
	}()
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	_ = d.Sync() // some file systems have no such thing; the file itself is safe
	return nil
}
