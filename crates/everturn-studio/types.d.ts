/** The shapes of the HTTP API that the page uses, and the page's own types. Only the checker reads this file. */

type ToolRequest = { name: string; ref?: string; input?: any };
/** The person who answered a question, and the form of the answer. */
type Approval = { answers?: { form: 'restart' | 'respond' | 'decline'; by?: string }[] };
type ToolResponse = { name: string; ref?: string; output?: any };
type Part = {
  text?: string;
  reasoning?: string;
  media?: { url: string; contentType?: string };
  data?: any;
  toolRequest?: ToolRequest;
  toolResponse?: ToolResponse;
  /** Set by the page from a message's metadata. */
  summary?: { upTo: number; text: string };
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
type Usage = { inputTokens?: number; outputTokens?: number; modelCalls?: number; toolCalls?: number; modelMs?: number; toolMs?: number; cost?: number };
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
  usage?: Usage;
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

type Block = import('./assets/js/markdown.js').Block;
type Conversation = import('./assets/js/conversation.js').Conversation;
type Inline = import('./assets/js/markdown.js').Inline;
type LocalSessions = import('./assets/js/local-sessions.js').LocalSessions;
type Studio = import('./assets/js/studio.js').Studio;
type Turn = import('./assets/js/turn.js').Turn;

type Operation = { op: string; path: string; value?: any; from?: string };
type RawEvent = { time: number; data: any };
type Patch = { time: number; operations: Operation[] };
type Input = { message?: Message; resume?: any };
/** `base` is the snapshot that the turn continues, `run` the one of a background run. */
type TurnOptions = { path: string; body: any; base: string | null; input?: Input; otherwise?: Input; run?: string; stream?: string };
/** `index` is the index of the entry's first message in the conversation. */
type Entry = { key: string; role: string; parts: Part[]; index: number; answers: Map<Part, ToolResponse> };
type Place = { agent: string | null; session: string | null; at: string | null; tab: string; compare: string | null };
/** `on` names the events of the conversation that change it. */
type Tab = { element: HTMLElement; update: () => void; on: string[] };
type Shortcut = { keys: string; about: string; run: () => void };
/** `folded` is the number of further snapshots that the row stands for. */
type Row = { snapshot: Snapshot; number: number; lane: number; parentRow: number; depth: number; folded: number; onPath: boolean };
/** `done` is the completed fraction, 0 to 1. */
type Run = {
  agent: AgentInfo;
  sessionId: string;
  snapshotId: string;
  startedAt: string;
  status: string;
  note: string;
  done: number | null;
  takenOver: boolean;
  endedAt: number | null;
  output: string;
};
type Span = {
  spanId: string;
  parentSpanId?: string;
  displayName: string;
  startTime: number;
  endTime: number;
  attributes: Record<string, any>;
  status?: { code: number; message?: string };
};
type Bar = {
  span: Span;
  depth: number;
  kind: 'model' | 'tool' | 'store' | 'other';
  left: number;
  width: number;
  time: number;
  tokens: number | null;
  cost: number;
  failed: boolean;
  running: boolean;
};
