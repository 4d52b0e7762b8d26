/* deepinfer.h: the C interface of deepinfer, C99.
 *
 *   deepinfer_model* model;
 *   deepinfer_request request;
 *   deepinfer_answer* answer;
 *   deepinfer_request_init(&request);
 *   request.text = "The capital of France is";
 *   if (deepinfer_open("smollm2", NULL, &model) != DEEPINFER_OK ||
 *       deepinfer_generate(model, &request, &answer) != DEEPINFER_OK) {
 *     fprintf(stderr, "%s\n", deepinfer_last_error());
 *   }
 *   puts(deepinfer_answer_text(answer, 0, NULL));
 *   deepinfer_answer_free(answer);
 *   deepinfer_close(model);
 *
 * Errors: every function that can fail returns a status and leaves its outputs alone unless it is
 * DEEPINFER_OK; deepinfer_last_error() tells why. NULL where it is not allowed is DEEPINFER_INVALID.
 * No exception crosses this interface.
 *
 * Strings are UTF-8 and end in a zero byte; lengths do not count it. Sizes are in bytes.
 *
 * Ownership: what a function hands out through an `out` parameter is the caller's, who frees it
 * with the function named there. Pointers that accessors return live as long as their object.
 *
 * Threads: a model may be used from any thread at the same time, an answer may be read from any; a
 * reply is polled by one thread at a time.
 *
 * Structs grow at their end only, and begin with their size, which the init functions set: a
 * program that was built against an older header goes on working.
 */
#ifndef DEEPINFER_DEEPINFER_H
#define DEEPINFER_DEEPINFER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes when something that exists changes its meaning. */
#define DEEPINFER_ABI_VERSION 1

#if defined(__GNUC__)
#define DEEPINFER_API __attribute__((visibility("default")))
#else
#define DEEPINFER_API
#endif

typedef enum deepinfer_status {
  DEEPINFER_OK = 0,
  DEEPINFER_INVALID = 1,     /* bad input */
  DEEPINFER_NOT_FOUND = 2,   /* a file or a model that is not there */
  DEEPINFER_CORRUPT = 3,     /* a file that contradicts itself */
  DEEPINFER_UNSUPPORTED = 4, /* well-formed, but not done here */
  DEEPINFER_IO = 5,          /* the system refused */
  DEEPINFER_EXHAUSTED = 6,   /* a limit or the memory is used up */
  DEEPINFER_CANCELLED = 7,
  DEEPINFER_INTERNAL = 8, /* a defect */
  DEEPINFER_TIMEOUT = 9,  /* deepinfer_poll(): nothing new in the time given */
  DEEPINFER_END = 10      /* deepinfer_poll(): all text was read, the answer is complete */
} deepinfer_status;

typedef enum deepinfer_finish {
  DEEPINFER_FINISH_NONE = 0,
  DEEPINFER_FINISH_STOP = 1,   /* end of the answer, stop string or stop id */
  DEEPINFER_FINISH_LENGTH = 2, /* max_tokens, or the context is full */
  DEEPINFER_FINISH_CANCELLED = 3,
  DEEPINFER_FINISH_ERROR = 4 /* see deepinfer_answer_error() */
} deepinfer_finish;

typedef struct deepinfer_model deepinfer_model;   /* weights, and the engine that runs them */
typedef struct deepinfer_reply deepinfer_reply;   /* an answer on its way */
typedef struct deepinfer_answer deepinfer_answer; /* complete */

/* DEEPINFER_ABI_VERSION of the library, and its release, "0.1.0". */
DEEPINFER_API uint32_t deepinfer_abi_version(void);
DEEPINFER_API const char* deepinfer_version(void);

/* Why the last call of this thread failed; "" when none did. Lives until the next failure. */
DEEPINFER_API const char* deepinfer_last_error(void);

/* ---- models ---- */

typedef struct deepinfer_model_options {
  size_t size;
  uint32_t threads;        /* 0: all usable cores */
  uint32_t max_sequences;  /* computed at once; the rest waits */
  uint32_t max_rows;       /* of one step */
  uint64_t context;        /* tokens of one prompt and its answer; 0: the model's limit */
  uint64_t cache_bytes;    /* for what was computed; 0: a part of the machine's memory */
  const char* numerics;    /* "fast", "exact", "faithful" */
  int32_t no_prefix_cache; /* not 0: nothing is remembered between prompts */
} deepinfer_model_options;

DEEPINFER_API void deepinfer_model_options_init(deepinfer_model_options* options);

/* path: a folder, a .gguf file or an alias such as "smollm2". options may be NULL.
 * Free with deepinfer_close(). */
DEEPINFER_API deepinfer_status deepinfer_open(const char* path,
                                              const deepinfer_model_options* options,
                                              deepinfer_model** out);
/* Cancels what is on its way and waits for those ends. Replies stay readable. Not from inside of a
 * callback. NULL is fine. */
DEEPINFER_API void deepinfer_close(deepinfer_model* model);

/* Tokens of one prompt and its answer that the model takes. */
DEEPINFER_API uint64_t deepinfer_context(const deepinfer_model* model);

/* ---- requests ---- */

typedef struct deepinfer_message {
  const char* role; /* "system", "user", "assistant", "tool" */
  const char* content;
} deepinfer_message;

typedef struct deepinfer_bias {
  int32_t id;
  float bias; /* -100 .. 100, added to the logit */
} deepinfer_bias;

/* One of text, ids and messages is set: text is continued as it is, messages go through the model's
 * chat layout, ids are taken as they are and need no tokenizer. Nothing of it is kept after the
 * call. */
typedef struct deepinfer_request {
  size_t size;
  const char* text;
  const int32_t* ids;
  size_t id_count;
  const deepinfer_message* messages;
  size_t message_count;

  uint64_t max_tokens; /* 256 */
  uint64_t min_tokens;
  const char* const* stop; /* ends before these texts */
  size_t stop_count;
  const int32_t* stop_ids;
  size_t stop_id_count;
  int32_t ignore_eos; /* not 0: go on up to max_tokens */
  int32_t ids_only;   /* not 0: no text is made */

  float temperature; /* 0: always the most likely token */
  float top_p;       /* 1 */
  int32_t top_k;     /* 0: all */
  float min_p;
  float repetition_penalty; /* 1 */
  float presence_penalty;
  float frequency_penalty;
  uint64_t seed;
  const deepinfer_bias* bias;
  size_t bias_count;
  uint32_t choices; /* 1: answers wanted; choice i draws with seed + i */
  uint32_t best_of; /* answers computed, the likeliest are kept, best first; 0: as many as wanted */

  int32_t replay;         /* not 0: approximate resumption of constant cost, where a model has it */
  uint64_t replay_tokens; /* 0: what the model recommends */
  int32_t draft;          /* not 0: tokens are proposed from the text so far; changes no answer */
  int32_t priority;       /* -8 .. 8, higher first */
  double timeout_ms;      /* 0: none */
  uint64_t salt;          /* requests of other salts share nothing that was computed */
} deepinfer_request;

DEEPINFER_API void deepinfer_request_init(deepinfer_request* request);

/* Waits for the answer. Free with deepinfer_answer_free(). A request that was accepted and failed
 * later is DEEPINFER_OK with DEEPINFER_FINISH_ERROR. */
DEEPINFER_API deepinfer_status deepinfer_generate(deepinfer_model* model,
                                                  const deepinfer_request* request,
                                                  deepinfer_answer** out);

/* Text as it comes: complete characters of choice `choice`; the last call for a request has no text
 * and `answer`, which lives as long as the reply. On a thread of the model: it must be short, must
 * not wait or close the model, and may submit and cancel. */
typedef void (*deepinfer_callback)(void* user, uint32_t choice, const char* text, size_t length,
                                   const deepinfer_answer* answer);

/* Returns at once. With a callback all text goes there, and deepinfer_poll() tells of the end only.
 * The callback may be called before this function returns. Free with deepinfer_reply_free(). */
DEEPINFER_API deepinfer_status deepinfer_submit(deepinfer_model* model,
                                                const deepinfer_request* request,
                                                deepinfer_callback callback, void* user,
                                                deepinfer_reply** out);

/* Waits up to timeout_ms for text: DEEPINFER_OK with a piece of choice *choice, which lives until
 * the next call for this reply; DEEPINFER_TIMEOUT; or DEEPINFER_END. choice and length may be NULL.
 */
DEEPINFER_API deepinfer_status deepinfer_poll(deepinfer_reply* reply, uint32_t timeout_ms,
                                              const char** text, size_t* length, uint32_t* choice);

/* Ends it within a step, as DEEPINFER_FINISH_CANCELLED; one that has ended is left alone. */
DEEPINFER_API void deepinfer_cancel(deepinfer_reply* reply);

/* NULL before the end; lives as long as the reply. */
DEEPINFER_API const deepinfer_answer* deepinfer_reply_answer(const deepinfer_reply* reply);

/* Cancels first; the callback may be called until the model says the end. NULL is fine. */
DEEPINFER_API void deepinfer_reply_free(deepinfer_reply* reply);

/* ---- answers: `choice` is below deepinfer_answer_choices() ---- */

typedef struct deepinfer_usage {
  uint64_t prompt_tokens;
  uint64_t cached_tokens; /* of the prompt, that were not computed */
  uint64_t completion_tokens;
  uint64_t drafted_tokens, accepted_tokens;
  double first_token_ms;
  double token_ms; /* mean time between later tokens */
} deepinfer_usage;

DEEPINFER_API uint32_t deepinfer_answer_choices(const deepinfer_answer* answer);
/* length and count may be NULL; NULL is returned for a choice that is not there. */
DEEPINFER_API const char* deepinfer_answer_text(const deepinfer_answer* answer, uint32_t choice,
                                                size_t* length);
DEEPINFER_API const int32_t* deepinfer_answer_ids(const deepinfer_answer* answer, uint32_t choice,
                                                  size_t* count);
/* Natural logarithms, one for each id. */
DEEPINFER_API const float* deepinfer_answer_logprobs(const deepinfer_answer* answer,
                                                     uint32_t choice, size_t* count);
DEEPINFER_API deepinfer_finish deepinfer_answer_finish(const deepinfer_answer* answer,
                                                       uint32_t choice);
/* "" unless it ended with DEEPINFER_FINISH_ERROR. */
DEEPINFER_API const char* deepinfer_answer_error(const deepinfer_answer* answer, uint32_t choice);
DEEPINFER_API deepinfer_status deepinfer_answer_usage(const deepinfer_answer* answer,
                                                      uint32_t choice, deepinfer_usage* usage);
/* Of deepinfer_generate() only. NULL is fine. */
DEEPINFER_API void deepinfer_answer_free(deepinfer_answer* answer);

/* ---- text and ids ---- */

/* Ids of a text as deepinfer_generate() would run it. Writes at most `capacity` of them; *count is
 * how many there are. */
DEEPINFER_API deepinfer_status deepinfer_tokenize(const deepinfer_model* model, const char* text,
                                                  int32_t* ids, size_t capacity, size_t* count);
/* Text of ids, without control tokens. Writes at most capacity - 1 bytes and a zero; *length is how
 * long it is. */
DEEPINFER_API deepinfer_status deepinfer_detokenize(const deepinfer_model* model,
                                                    const int32_t* ids, size_t count, char* text,
                                                    size_t capacity, size_t* length);

#ifdef __cplusplus
}
#endif

#endif /* DEEPINFER_DEEPINFER_H */
