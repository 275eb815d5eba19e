/** The shapes of the HTTP API that the page uses, and the page's own types. Only the checker reads this file. */

type ToolRequest = { name: string; ref?: string; input?: any };
type ToolResponse = { name: string; ref?: string; output?: any };
type Part = {
  text?: string;
  reasoning?: string;
  media?: { url: string; contentType?: string };
  data?: any;
  toolRequest?: ToolRequest;
  toolResponse?: ToolResponse;
  metadata?: Record<string, any>;
};
type Message = { role: string; content: Part[]; metadata?: Record<string, any> };
type Artifact = { name?: string; parts: Part[]; metadata?: Record<string, any> };
type State = { sessionId?: string; messages: Message[]; custom?: any; artifacts?: Artifact[] };
type Failure = { status: string; message: string };
type Snapshot = {
  snapshotId: string;
  sessionId?: string;
  parentId?: string;
  createdAt: string;
  updatedAt?: string;
  heartbeatAt?: string;
  status: string;
  finishReason?: string;
  error?: Failure;
  index?: number;
  turnIndex?: number;
  orphaned?: boolean;
  labels?: string[];
  note?: string;
  state?: State;
  forkedFrom?: { sessionId?: string; snapshotId: string };
  usage?: Usage;
};
type Usage = { inputTokens?: number; outputTokens?: number; modelCalls?: number; toolCalls?: number; modelMs?: number; toolMs?: number };
type Cursor = { createdAt: string; snapshotId: string };
type AgentInfo = {
  name: string;
  path: string;
  description?: string | null;
  actions: string[];
  metadata: {
    agent?: { stateManagement?: string; abortable?: boolean; stateSchema?: any };
    everturn?: { concurrency?: string; editedInputs?: boolean };
  };
};
type Output = {
  sessionId?: string;
  snapshotId?: string;
  state?: State;
  message?: Message;
  artifacts?: Artifact[];
  finishReason?: string;
  error?: Failure;
};
type Chunk = {
  modelChunk?: { role?: string; index?: number; content: Part[]; aggregated?: boolean };
  customPatch?: Operation[];
  artifact?: Artifact;
  status?: any;
  takenOver?: boolean;
  turnEnd?: { snapshotId?: string; finishReason?: string };
};
type SessionSummary = { sessionId: string; latest: Snapshot };

type Bar = import('./assets/js/spans.js').Bar;
type Block = import('./assets/js/markdown.js').Block;
type Conversation = import('./assets/js/conversation.js').Conversation;
type Entry = import('./assets/js/messages.js').Entry;
type Inline = import('./assets/js/markdown.js').Inline;
type LocalSessions = import('./assets/js/local-sessions.js').LocalSessions;
type Operation = import('./assets/js/patch.js').Operation;
type Place = import('./assets/js/router.js').Place;
type RawEvent = import('./assets/js/conversation.js').RawEvent;
type Row = import('./assets/js/timeline-layout.js').Row;
type Run = import('./assets/js/runs.js').Run;
type Shortcut = import('./assets/js/keys.js').Shortcut;
type Span = import('./assets/js/spans.js').Span;
type Studio = import('./assets/js/studio.js').Studio;
type Tab = import('./assets/js/inspector.js').Tab;
type Turn = import('./assets/js/turn.js').Turn;
