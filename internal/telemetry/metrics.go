package telemetry

// Names of metrics, with their unit at the end as Prometheus has it. Series with
// a lane label are bounded by the lanes that live, and those with a group label by the
// groups that exist; all other labels are closed lists of words.
const (
	// MetricBuild is 1, labeled with the version.
	MetricBuild = "laneway_build_info"

	// MetricGatewayRequests counts requests by listener (edge, inside), reason of
	// the choice and class of the status (2xx, …).
	MetricGatewayRequests = "laneway_gateway_requests_total"
	// MetricGatewaySeconds is a histogram of time to a response's headers, by
	// listener.
	MetricGatewaySeconds = "laneway_gateway_request_seconds"
	// MetricGatewayInFlight is how many requests are under way, by listener.
	MetricGatewayInFlight = "laneway_gateway_requests_in_flight"
	// MetricGatewayRetries counts requests that were sent again to another
	// instance.
	MetricGatewayRetries = "laneway_gateway_retries_total"
	// MetricGatewayLaneRequests counts requests by the lane that served, for lanes
	// that live.
	MetricGatewayLaneRequests = "laneway_gateway_lane_requests_total"
	// MetricColorsRefused counts colors that came from outside and were dropped,
	// by why (untrusted, malformed, signature).
	MetricColorsRefused = "laneway_colors_refused_total"
	// MetricColoring counts colors given at the edge, by rule.
	MetricColoring = "laneway_coloring_total"

	// MetricViewRevision is the registry revision of this process's view.
	MetricViewRevision = "laneway_view_revision"
	// MetricViewStale is 1 while the control plane cannot be reached.
	MetricViewStale = "laneway_view_stale"

	// MetricObjects is how many objects the registry has, by kind.
	MetricObjects = "laneway_objects"
	// MetricRevision is the registry's revision.
	MetricRevision = "laneway_registry_revision"
	// MetricSessions is how many sessions live.
	MetricSessions = "laneway_sessions"
	// MetricWatches is how many watches are open.
	MetricWatches = "laneway_watches"
	// MetricAPIRequests counts API requests by kind, method and class of the
	// status.
	MetricAPIRequests = "laneway_api_requests_total"
	// MetricAPISeconds is a histogram of the time of API requests, by kind.
	MetricAPISeconds = "laneway_api_request_seconds"
	// MetricPanics counts API requests whose handler panicked.
	MetricPanics = "laneway_api_panics_total"
	// MetricWatchEvents counts puts and deletes that were sent to watches.
	MetricWatchEvents = "laneway_watch_events_total"
	// MetricWatchOverflows counts watches that were ended because their client was too
	// slow.
	MetricWatchOverflows = "laneway_watch_overflows_total"
	// MetricRenewals counts renewals of sessions, by result.
	MetricRenewals = "laneway_session_renewals_total"
	// MetricLaneSteps counts steps in the life of lanes that this replica took, by step.
	MetricLaneSteps = "laneway_lane_steps_total"
	// MetricLanes is how many lanes there are, by state.
	MetricLanes = "laneway_lanes"
	// MetricLeader is 1 on the replica that runs the life of lanes.
	MetricLeader = "laneway_control_leader"

	// MetricCursorWrites counts writes of cursors by outcome: done, conflict, refused, unknown.
	MetricCursorWrites = "laneway_cursor_writes_total"
	// MetricCursorMoves counts moves of cursors by kind, reason and outcome of their write.
	MetricCursorMoves = "laneway_cursor_moves_total"
	// MetricCursorSeconds is a histogram of the time of the transactions of such writes.
	MetricCursorSeconds = "laneway_cursor_write_seconds"
	// MetricGroupMoves counts moves that took place by group and kind. Series with a group
	// label are those of 1,000 groups that exist; * stands for all others.
	MetricGroupMoves = "laneway_group_moves_total"
	// MetricGroupNotes counts notes of cursors that were written, by group.
	MetricGroupNotes = "laneway_group_notes_total"
	// MetricGroupMembers is how many members live, by group.
	MetricGroupMembers = "laneway_group_members"
	// MetricGroupCursors is how many cursors there are, by group and state: held by a live
	// session, or free.
	MetricGroupCursors = "laneway_group_cursors"

	// MetricEngineInfo is 1, labeled with what an engine is: scheme, embedded (true, false)
	// and durability. This and what follows is of engines that a process has, by name.
	MetricEngineInfo = "laneway_engine_info"
	// MetricEngineUp is 1 where an engine answers.
	MetricEngineUp = "laneway_engine_up"
	// MetricEngineTopics is how many topics an engine has.
	MetricEngineTopics = "laneway_engine_topics"
	// MetricEngineMessages is how many messages an engine has.
	MetricEngineMessages = "laneway_engine_messages"
	// MetricEngineDisk is how many bytes the files of an embedded engine have.
	MetricEngineDisk = "laneway_engine_disk_bytes"
	// MetricEngineConnections is how many programs are connected to an embedded engine.
	MetricEngineConnections = "laneway_engine_connections"
	// MetricEngineSynced is when the disk of an embedded engine last synced, in Unix seconds.
	MetricEngineSynced = "laneway_engine_sync_timestamp_seconds"
	// MetricEngineSync is how long that took.
	MetricEngineSync = "laneway_engine_sync_seconds"
	// MetricEngineSampled is when all of this was so, in Unix seconds.
	MetricEngineSampled = "laneway_engine_sample_timestamp_seconds"
	// MetricGroupWaiting is how many messages wait for a group, by where: topic, retry, dead.
	MetricGroupWaiting = "laneway_group_waiting_messages"
	// MetricGroupOldest is the age of the oldest of them.
	MetricGroupOldest = "laneway_group_oldest_seconds"
	// MetricGroupsLeft is how many groups of an engine were not counted.
	MetricGroupsLeft = "laneway_groups_not_counted"
)
