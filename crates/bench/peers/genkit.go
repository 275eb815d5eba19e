// Genkit's Go agents as a worker of the comparison: reads one piece of work a line, as JSON, and answers each with a line.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/firebase/genkit/go/ai"
	aix "github.com/firebase/genkit/go/ai/exp"
	"github.com/firebase/genkit/go/ai/exp/localstore"
	"github.com/firebase/genkit/go/genkit"
	genkitx "github.com/firebase/genkit/go/genkit/exp"
	"github.com/google/dotprompt/go/dotprompt"
)

type work struct {
	Work, Store, Folder      string
	Turns, Samples, Sessions int
	Pieces, Chunks, Times    int
	Waits                    bool
}

var (
	ctx      = context.Background()
	g        = genkit.Init(ctx, genkit.WithExperimental())
	question = strings.Repeat("q", 500)
	answer   = strings.Repeat("a", 1500)
	agents   int
	pieces   = 1
	waits    = false
	kept     []any
)

const prompt = `---
model: silent
---
{{role "system"}}
You advise the customers of {{shop}}. Be brief.
{{role "user"}}
{{#each items}}
- {{name}}{{#if sold}} (sold){{/if}}: {{price}}
{{/each}}
What of this is on offer?
`

func define(asked work) (*aix.Agent[any], error) {
	var store aix.SessionStore[any] = localstore.NewInMemorySessionStore[any]()
	if asked.Store == "file" {
		files, err := localstore.NewFileSessionStore[any](asked.Folder)
		if err != nil {
			return nil, err
		}
		store = files
	}
	agents++
	inline := aix.InlinePrompt{ai.WithModelName("bench/silent"), ai.WithSystem("You are part of a comparison.")}
	return genkitx.DefineAgent(g, fmt.Sprintf("agent%d", agents), inline, aix.WithSessionStore(store)), nil
}

func turn(agent *aix.Agent[any], option aix.InvocationOption[any]) (*aix.AgentOutput[any], error) {
	output, err := agent.Run(ctx, &aix.AgentInput{Message: ai.NewUserTextMessage(question)}, option)
	if err == nil && output.Error != nil {
		err = output.Error
	}
	return output, err
}

func timed(does func() error) (float64, error) {
	began := time.Now()
	err := does()
	return float64(time.Since(began).Nanoseconds()) / 1e3, err
}

func median(times []float64) float64 {
	slices.Sort(times)
	return times[len(times)/2]
}

func conversation(asked work) (map[string]any, error) {
	agent, err := define(asked)
	if err != nil {
		return nil, err
	}
	one := func() error { _, err := turn(agent, aix.WithSessionID[any]("s")); return err }
	for range asked.Turns - asked.Samples {
		if err := one(); err != nil {
			return nil, err
		}
	}
	var times []float64
	for range asked.Samples {
		time, err := timed(one)
		if err != nil {
			return nil, err
		}
		times = append(times, time)
	}
	var bytes int64
	filepath.WalkDir(asked.Folder, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			if info, err := entry.Info(); err == nil {
				bytes += info.Size()
			}
		}
		return nil
	})
	return map[string]any{"micros": median(times), "bytes": bytes}, nil
}

func sessions(asked work) (map[string]any, error) {
	agent, err := define(asked)
	if err != nil {
		return nil, err
	}
	var (
		group   sync.WaitGroup
		mutex   sync.Mutex
		times   []float64
		failure error
	)
	began := time.Now()
	for session := range asked.Sessions {
		group.Go(func() {
			for range asked.Turns {
				time, err := timed(func() error {
					_, err := turn(agent, aix.WithSessionID[any](fmt.Sprintf("s%d", session)))
					return err
				})
				mutex.Lock()
				times, failure = append(times, time), err
				mutex.Unlock()
			}
		})
	}
	group.Wait()
	seconds := time.Since(began).Seconds()
	return map[string]any{
		"perSecond": float64(len(times)) / seconds, "p50": median(times), "p99": times[len(times)*99/100],
	}, failure
}

func resume(asked work) (map[string]any, error) {
	micros, err := timed(func() error {
		agent, err := define(asked)
		if err == nil {
			_, err = turn(agent, aix.WithSessionID[any]("s"))
		}
		return err
	})
	return map[string]any{"micros": micros}, err
}

func fork(asked work) (map[string]any, error) {
	agent, err := define(asked)
	if err != nil {
		return nil, err
	}
	middle := ""
	for done := range asked.Turns {
		output, err := turn(agent, aix.WithSessionID[any]("s"))
		if err != nil {
			return nil, err
		}
		if done == asked.Turns/2 {
			middle = output.SnapshotID
		}
	}
	micros, err := timed(func() error { _, err := turn(agent, aix.WithSnapshotID[any](middle)); return err })
	return map[string]any{"micros": micros}, err
}

func stream(asked work) (map[string]any, error) {
	agent, err := define(asked)
	if err != nil {
		return nil, err
	}
	pieces = asked.Chunks
	defer func() { pieces = 1 }()
	began := time.Now()
	connection, err := agent.Connect(ctx, aix.WithSessionID[any]("s"))
	if err != nil {
		return nil, err
	}
	if err := connection.SendMessage(ai.NewUserTextMessage(question)); err != nil {
		return nil, err
	}
	if err := connection.Close(); err != nil {
		return nil, err
	}
	for _, err := range connection.Receive() {
		if err != nil {
			return nil, err
		}
	}
	_, err = connection.Output()
	return map[string]any{"perSecond": float64(asked.Chunks) / time.Since(began).Seconds()}, err
}

func hold(asked work) (map[string]any, error) {
	agent, err := define(asked)
	if err != nil {
		return nil, err
	}
	for session := range asked.Sessions {
		for range asked.Turns {
			if _, err := turn(agent, aix.WithSessionID[any](fmt.Sprintf("s%d", session))); err != nil {
				return nil, err
			}
		}
	}
	kept = append(kept, agent)
	return map[string]any{}, nil
}

func detach(asked work) (map[string]any, error) {
	agent, err := define(asked)
	if err != nil {
		return nil, err
	}
	waits = true
	for session := range asked.Sessions {
		input := &aix.AgentInput{Message: ai.NewUserTextMessage(question), Detach: true}
		if _, err := agent.Run(ctx, input, aix.WithSessionID[any](fmt.Sprintf("s%d", session))); err != nil {
			return nil, err
		}
	}
	kept = append(kept, agent)
	return map[string]any{}, nil
}

func render(asked work) (map[string]any, error) {
	items := make([]map[string]any, 50)
	for at := range items {
		items[at] = map[string]any{"name": fmt.Sprintf("item %d", at), "sold": at%3 == 0, "price": at}
	}
	rendered, err := dotprompt.NewDotprompt(nil).Compile(prompt, nil)
	if err != nil {
		return nil, err
	}
	data := &dotprompt.DataArgument{Input: map[string]any{"shop": "the corner shop", "items": items}}
	micros, err := timed(func() error {
		for range asked.Times {
			if _, err := rendered(data, nil); err != nil {
				return err
			}
		}
		return nil
	})
	return map[string]any{"micros": micros / float64(asked.Times)}, err
}

func serve(asked work) (map[string]any, error) {
	agent, err := define(asked)
	if err != nil {
		return nil, err
	}
	pieces = asked.Pieces
	waits = asked.Waits
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /agent", genkit.Handler(agent))
	go http.Serve(listener, mux)
	return map[string]any{"address": listener.Addr().String(), "path": "/agent"}, nil
}

func version(work) (map[string]any, error) {
	return map[string]any{"version": "Genkit Go from its sources, " + runtime.Version()}, nil
}

func main() {
	supports := &ai.ModelOptions{Supports: &ai.ModelSupports{Multiturn: true, SystemRole: true}}
	genkit.DefineModel(g, "bench/silent", supports,
		func(ctx context.Context, _ *ai.ModelRequest, send ai.ModelStreamCallback) (*ai.ModelResponse, error) {
			if waits {
				if send != nil {
					if err := send(ctx, &ai.ModelResponseChunk{Content: []*ai.Part{ai.NewTextPart(answer)}}); err != nil {
						return nil, err
					}
				}
				<-ctx.Done()
				return nil, ctx.Err()
			}
			if send != nil && pieces > 1 {
				piece := ai.NewTextPart(answer[:(len(answer)+pieces-1)/pieces])
				for range pieces {
					if err := send(ctx, &ai.ModelResponseChunk{Content: []*ai.Part{piece}}); err != nil {
						return nil, err
					}
				}
			}
			return &ai.ModelResponse{Message: ai.NewModelTextMessage(answer), FinishReason: ai.FinishReasonStop}, nil
		})
	works := map[string]func(work) (map[string]any, error){
		"conversation": conversation, "sessions": sessions, "resume": resume, "fork": fork, "stream": stream, "hold": hold, "serve": serve,
		"detach": detach, "render": render, "version": version,
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var asked work
		answer := map[string]any{"unsupported": true}
		err := json.Unmarshal(lines.Bytes(), &asked)
		if does := works[asked.Work]; err == nil && does != nil {
			answer, err = does(asked)
		}
		if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		json.NewEncoder(os.Stdout).Encode(answer)
	}
}
