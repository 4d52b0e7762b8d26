/* The C interface from a C program: what it gives, what it refuses, and that nothing is left. */
#include <deepinfer/deepinfer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition)                                                                  \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      fprintf(stderr, "line %d: %s is false (last error: %s)\n", __LINE__, #condition,     \
              deepinfer_last_error());                                                     \
      exit(1);                                                                             \
    }                                                                                      \
  } while (0)

struct heard {
  char text[4096];
  int ends;
};

static void on_text(void* user, uint32_t choice, const char* text, size_t length,
                    const deepinfer_answer* answer) {
  struct heard* heard = user;
  EXPECT(choice == 0);
  EXPECT(strlen(text) == length);
  strncat(heard->text, text, sizeof heard->text - strlen(heard->text) - 1);
  if (answer != NULL) ++heard->ends;
}

static deepinfer_request question(const deepinfer_message* message) {
  deepinfer_request request;
  deepinfer_request_init(&request);
  request.messages = message;
  request.message_count = 1;
  request.max_tokens = 20;
  request.ignore_eos = 1;
  request.temperature = 1;
  request.seed = 4;
  return request;
}

static void test_refusals(const char* path) {
  deepinfer_model* model = NULL;
  deepinfer_model_options options;
  EXPECT(deepinfer_open("no-such-model", NULL, &model) == DEEPINFER_NOT_FOUND);
  EXPECT(strstr(deepinfer_last_error(), "no-such-model") != NULL);
  EXPECT(deepinfer_open(NULL, NULL, &model) == DEEPINFER_INVALID);
  EXPECT(deepinfer_open(path, NULL, NULL) == DEEPINFER_INVALID);
  deepinfer_model_options_init(&options);
  options.numerics = "roman";
  EXPECT(deepinfer_open(path, &options, &model) == DEEPINFER_INVALID);
  memset(&options, 0, sizeof options);
  EXPECT(deepinfer_open(path, &options, &model) == DEEPINFER_INVALID);
  EXPECT(strstr(deepinfer_last_error(), "size") != NULL);
  EXPECT(model == NULL);
}

static void test_generate(deepinfer_model* model) {
  const deepinfer_message message = {"user", "Tell me of the sea."};
  deepinfer_request request = question(&message);
  deepinfer_answer* answer = NULL;
  deepinfer_usage usage;
  size_t ids = 0, logprobs = 0, length = 0;
  request.choices = 2;
  EXPECT(deepinfer_generate(model, &request, &answer) == DEEPINFER_OK);
  EXPECT(deepinfer_answer_choices(answer) == 2);
  EXPECT(deepinfer_answer_finish(answer, 0) == DEEPINFER_FINISH_LENGTH);
  EXPECT(deepinfer_answer_ids(answer, 0, &ids) != NULL && ids == 20);
  EXPECT(deepinfer_answer_logprobs(answer, 1, &logprobs)[0] < 0 && logprobs == 20);
  EXPECT(strlen(deepinfer_answer_text(answer, 0, &length)) <= length);
  EXPECT(deepinfer_answer_text(answer, 2, NULL) == NULL);
  EXPECT(strcmp(deepinfer_answer_error(answer, 0), "") == 0);
  EXPECT(deepinfer_answer_usage(answer, 0, &usage) == DEEPINFER_OK);
  EXPECT(usage.completion_tokens == 20 && usage.prompt_tokens > 5);
  deepinfer_answer_free(answer);
  deepinfer_answer_free(NULL);
}

static void test_streams(deepinfer_model* model) {
  const deepinfer_message message = {"user", "Tell me of the sea."};
  deepinfer_request request = question(&message);
  struct heard heard = {"", 0};
  char pulled[4096] = "";
  const char* text;
  deepinfer_reply *pushing, *pulling, *endless;
  deepinfer_status status;
  EXPECT(deepinfer_submit(model, &request, on_text, &heard, &pushing) == DEEPINFER_OK);
  EXPECT(deepinfer_submit(model, &request, NULL, NULL, &pulling) == DEEPINFER_OK);
  while ((status = deepinfer_poll(pulling, 10000, &text, NULL, NULL)) == DEEPINFER_OK)
    strncat(pulled, text, sizeof pulled - strlen(pulled) - 1);
  EXPECT(status == DEEPINFER_END);
  while (deepinfer_poll(pushing, 10000, &text, NULL, NULL) == DEEPINFER_TIMEOUT) {
  }
  EXPECT(heard.ends == 1);
  EXPECT(strcmp(heard.text, pulled) == 0);
  EXPECT(strcmp(deepinfer_answer_text(deepinfer_reply_answer(pulling), 0, NULL), pulled) == 0);
  deepinfer_reply_free(pushing);
  deepinfer_reply_free(pulling);

  request.max_tokens = 450;
  EXPECT(deepinfer_submit(model, &request, NULL, NULL, &endless) == DEEPINFER_OK);
  deepinfer_cancel(endless);
  while ((status = deepinfer_poll(endless, 10000, &text, NULL, NULL)) == DEEPINFER_OK) {
  }
  EXPECT(status == DEEPINFER_END);
  EXPECT(deepinfer_answer_finish(deepinfer_reply_answer(endless), 0) ==
         DEEPINFER_FINISH_CANCELLED);
  deepinfer_reply_free(endless);
}

static void test_bad_requests(deepinfer_model* model) {
  const deepinfer_message message = {"nobody", "x"};
  deepinfer_request request = question(&message);
  deepinfer_answer* answer = NULL;
  EXPECT(deepinfer_generate(model, &request, &answer) == DEEPINFER_INVALID);
  EXPECT(strstr(deepinfer_last_error(), "nobody") != NULL);
  deepinfer_request_init(&request);
  EXPECT(deepinfer_generate(model, &request, &answer) == DEEPINFER_INVALID);
  request.text = "x";
  request.temperature = -1;
  EXPECT(deepinfer_generate(model, &request, &answer) == DEEPINFER_INVALID);
  request.temperature = 0;
  request.stop_count = 3;
  EXPECT(deepinfer_generate(model, &request, &answer) == DEEPINFER_INVALID);
  EXPECT(answer == NULL);
}

static void test_tokens(deepinfer_model* model) {
  int32_t ids[64];
  char text[64];
  size_t count = 0, length = 0;
  EXPECT(deepinfer_tokenize(model, "the sea", ids, 64, &count) == DEEPINFER_OK);
  EXPECT(count > 0 && count <= 64);
  EXPECT(deepinfer_detokenize(model, ids, count, text, sizeof text, &length) == DEEPINFER_OK);
  EXPECT(strcmp(text, "the sea") == 0 && length == 7);
  EXPECT(deepinfer_detokenize(model, ids, count, text, 4, &length) == DEEPINFER_OK);
  EXPECT(strcmp(text, "the") == 0 && length == 7);
  EXPECT(deepinfer_tokenize(model, "\xff", ids, 64, &count) == DEEPINFER_INVALID);
}

int main(int argc, char** argv) {
  deepinfer_model* model;
  deepinfer_reply* late;
  const deepinfer_message message = {"user", "one that outlives its model"};
  deepinfer_request request = question(&message);
  EXPECT(argc == 2);
  EXPECT(deepinfer_abi_version() == DEEPINFER_ABI_VERSION);
  EXPECT(strlen(deepinfer_version()) >= 5);
  test_refusals(argv[1]);
  EXPECT(deepinfer_open(argv[1], NULL, &model) == DEEPINFER_OK);
  EXPECT(deepinfer_context(model) == 512);
  test_generate(model);
  test_streams(model);
  test_bad_requests(model);
  test_tokens(model);
  request.max_tokens = 450;
  EXPECT(deepinfer_submit(model, &request, NULL, NULL, &late) == DEEPINFER_OK);
  deepinfer_close(model);
  EXPECT(deepinfer_answer_finish(deepinfer_reply_answer(late), 0) == DEEPINFER_FINISH_CANCELLED);
  deepinfer_cancel(late);
  deepinfer_reply_free(late);
  deepinfer_close(NULL);
  return 0;
}
