/*
 * Published configurations are read as their makers wrote them, older spellings and absent keys
 * included, and give as many parameters as the models have.
 * Counts: shapes of the published weights, tied matrices once.
 */
#include "tests/unit/model_help.h"

#include "trainer/model/params.h"

static const struct {
    const char *name;
    int64_t     numel;
    const char *config;
} published[] = {
{"bloom-560m", 559214592,
 "{'apply_residual_connection_post_layernorm':false,'attention_dropout':0.0,"
 "'attention_softmax_in_fp32':true,'bias_dropout_fusion':true,'bos_token_id':1,"
 "'eos_token_id':2,'pad_token_id':3,'unk_token_id':0,'hidden_dropout':0.0,"
 "'initializer_range':0.02,'layer_norm_epsilon':1e-05,'masked_softmax_fusion':true,"
 "'model_type':'bloom','n_embed':1024,'n_inner':null,'n_layer':24,'num_attention_heads':16,"
 "'offset_alibi':100,'pretraining_tp':1,'seq_length':2048,'skip_bias_add':true,"
 "'skip_bias_add_qkv':false,'transformers_version':'4.20.0','use_cache':true,"
 "'vocab_size':250880}"},
{"bloomz-1b1", 1065314304,
 "{'model_type':'bloom','n_embed':1536,'n_layer':24,'num_attention_heads':16,'seq_length':2048,"
 "'hidden_dropout':0.0,'attention_dropout':0.0,'layer_norm_epsilon':1e-05,"
 "'offset_alibi':100,'pretraining_tp':1,'unk_token_id':0,'vocab_size':250880}"},
{"opt-125m", 125239296,
 "{'_name_or_path':'facebook/opt-125m','activation_dropout':0.0,'activation_function':'relu',"
 "'architectures':['OPTForCausalLM'],'attention_dropout':0.0,'bos_token_id':2,"
 "'do_layer_norm_before':true,'dropout':0.1,'eos_token_id':2,'ffn_dim':3072,'hidden_size':768,"
 "'init_std':0.02,'layerdrop':0.0,'max_position_embeddings':2048,'model_type':'opt',"
 "'num_attention_heads':12,'num_hidden_layers':12,'pad_token_id':1,'prefix':'</s>',"
 "'torch_dtype':'float16','transformers_version':'4.21.0.dev0','use_cache':true,"
 "'vocab_size':50272,'word_embed_proj_dim':768}"},
{"opt-350m", 331196416,
 "{'activation_function':'relu','do_layer_norm_before':false,'dropout':0.1,'ffn_dim':4096,"
 "'hidden_size':1024,'init_std':0.02,'layerdrop':0.0,'max_position_embeddings':2048,"
 "'model_type':'opt','num_attention_heads':16,'num_hidden_layers':24,'pad_token_id':1,"
 "'vocab_size':50272,'word_embed_proj_dim':512}"},
{"opt-1.3b", 1315758080,
 "{'_remove_final_layer_norm':false,'activation_function':'relu','attention_dropout':0.0,"
 "'do_layer_norm_before':true,'dropout':0.1,'ffn_dim':8192,'hidden_size':2048,'layerdrop':0.0,"
 "'max_position_embeddings':2048,'model_type':'opt','num_attention_heads':32,"
 "'num_hidden_layers':24,'pad_token_id':1,'vocab_size':50272,'word_embed_proj_dim':2048}"},
{"gpt2", 124439808,
 "{'activation_function':'gelu_new','architectures':['GPT2LMHeadModel'],'attn_pdrop':0.1,"
 "'bos_token_id':50256,'embd_pdrop':0.1,'eos_token_id':50256,'initializer_range':0.02,"
 "'layer_norm_epsilon':1e-05,'model_type':'gpt2','n_ctx':1024,'n_embd':768,'n_head':12,"
 "'n_layer':12,'n_positions':1024,'resid_pdrop':0.1,'summary_activation':null,"
 "'summary_first_dropout':0.1,'summary_proj_to_labels':true,'summary_type':'cls_index',"
 "'summary_use_proj':true,'task_specific_params':{'text-generation':{'do_sample':true,"
 "'max_length':50}},'vocab_size':50257}"},
{"Llama-2-7b", 6738415616,
 "{'_name_or_path':'meta-llama/Llama-2-7b-hf','architectures':['LlamaForCausalLM'],"
 "'bos_token_id':1,'eos_token_id':2,'hidden_act':'silu','hidden_size':4096,"
 "'initializer_range':0.02,'intermediate_size':11008,'max_position_embeddings':4096,"
 "'model_type':'llama','num_attention_heads':32,'num_hidden_layers':32,"
 "'num_key_value_heads':32,'pretraining_tp':1,'rms_norm_eps':1e-05,'rope_scaling':null,"
 "'tie_word_embeddings':false,'torch_dtype':'float16','transformers_version':'4.31.0.dev0',"
 "'use_cache':true,'vocab_size':32000}"},
{"Llama-3.1-8B", 8030261248,
 "{'architectures':['LlamaForCausalLM'],'attention_bias':false,'attention_dropout':0.0,"
 "'bos_token_id':128000,'eos_token_id':[128001,128008,128009],'hidden_act':'silu',"
 "'hidden_size':4096,'initializer_range':0.02,'intermediate_size':14336,"
 "'max_position_embeddings':131072,'mlp_bias':false,'model_type':'llama',"
 "'num_attention_heads':32,'num_hidden_layers':32,'num_key_value_heads':8,'pretraining_tp':1,"
 "'rms_norm_eps':1e-05,'rope_scaling':{'factor':8.0,'low_freq_factor':1.0,"
 "'high_freq_factor':4.0,'original_max_position_embeddings':8192,'rope_type':'llama3'},"
 "'rope_theta':500000.0,'tie_word_embeddings':false,'torch_dtype':'bfloat16',"
 "'use_cache':true,'vocab_size':128256}"},
{"Llama-3.2-1B", 1235814400,
 "{'head_dim':64,'hidden_act':'silu','hidden_size':2048,'intermediate_size':8192,"
 "'max_position_embeddings':131072,'model_type':'llama','num_attention_heads':32,"
 "'num_hidden_layers':16,'num_key_value_heads':8,'rms_norm_eps':1e-05,"
 "'rope_scaling':{'factor':32.0,'high_freq_factor':4.0,'low_freq_factor':1.0,"
 "'original_max_position_embeddings':8192,'rope_type':'llama3'},'rope_theta':500000.0,"
 "'tie_word_embeddings':true,'vocab_size':128256}"},
{"Mistral-7B-v0.1", 7241732096,
 "{'architectures':['MistralForCausalLM'],'bos_token_id':1,'eos_token_id':2,"
 "'hidden_act':'silu','hidden_size':4096,'initializer_range':0.02,'intermediate_size':14336,"
 "'max_position_embeddings':32768,'model_type':'mistral','num_attention_heads':32,"
 "'num_hidden_layers':32,'num_key_value_heads':8,'rms_norm_eps':1e-05,'rope_theta':10000.0,"
 "'sliding_window':4096,'tie_word_embeddings':false,'torch_dtype':'bfloat16',"
 "'transformers_version':'4.34.0.dev0','use_cache':true,'vocab_size':32000}"},
{"Mistral-7B-v0.3", 7248023552,
 "{'hidden_act':'silu','hidden_size':4096,'intermediate_size':14336,"
 "'max_position_embeddings':32768,'model_type':'mistral','num_attention_heads':32,"
 "'num_hidden_layers':32,'num_key_value_heads':8,'rms_norm_eps':1e-05,'rope_theta':1000000.0,"
 "'sliding_window':null,'tie_word_embeddings':false,'vocab_size':32768}"},
{"Mixtral-8x7B", 46702792704,
 "{'architectures':['MixtralForCausalLM'],'attention_dropout':0.0,'bos_token_id':1,"
 "'eos_token_id':2,'hidden_act':'silu','hidden_size':4096,'initializer_range':0.02,"
 "'intermediate_size':14336,'max_position_embeddings':32768,'model_type':'mixtral',"
 "'num_attention_heads':32,'num_experts_per_tok':2,'num_hidden_layers':32,"
 "'num_key_value_heads':8,'num_local_experts':8,'output_router_logits':false,"
 "'rms_norm_eps':1e-05,'rope_theta':1000000.0,'router_aux_loss_coef':0.02,"
 "'sliding_window':null,'tie_word_embeddings':false,'torch_dtype':'bfloat16',"
 "'use_cache':true,'vocab_size':32000}"},
{"Qwen2.5-0.5B", 494032768,
 "{'architectures':['Qwen2ForCausalLM'],'attention_dropout':0.0,'bos_token_id':151643,"
 "'eos_token_id':151643,'hidden_act':'silu','hidden_size':896,'initializer_range':0.02,"
 "'intermediate_size':4864,'max_position_embeddings':32768,'max_window_layers':24,"
 "'model_type':'qwen2','num_attention_heads':14,'num_hidden_layers':24,"
 "'num_key_value_heads':2,'rms_norm_eps':1e-06,'rope_theta':1000000.0,'sliding_window':32768,"
 "'tie_word_embeddings':true,'torch_dtype':'bfloat16','use_cache':true,'use_mrope':false,"
 "'use_sliding_window':false,'vocab_size':151936}"},
{"Qwen2.5-14B", 14770033664,
 "{'hidden_act':'silu','hidden_size':5120,'intermediate_size':13824,"
 "'max_position_embeddings':131072,'max_window_layers':48,'model_type':'qwen2',"
 "'num_attention_heads':40,'num_hidden_layers':48,'num_key_value_heads':8,"
 "'rms_norm_eps':1e-05,'rope_theta':1000000.0,'sliding_window':131072,"
 "'tie_word_embeddings':false,'use_sliding_window':false,'vocab_size':152064}"},
{"Qwen3-0.6B", 596049920,
 "{'attention_bias':false,'head_dim':128,'hidden_act':'silu','hidden_size':1024,"
 "'intermediate_size':3072,'max_position_embeddings':40960,'max_window_layers':28,"
 "'model_type':'qwen3','num_attention_heads':16,'num_hidden_layers':28,"
 "'num_key_value_heads':8,'rms_norm_eps':1e-06,'rope_scaling':null,'rope_theta':1000000,"
 "'sliding_window':null,'tie_word_embeddings':true,'use_sliding_window':false,"
 "'vocab_size':151936}"},
{"Qwen3-8B", 8190735360,
 "{'architectures':['Qwen3ForCausalLM'],'attention_bias':false,'attention_dropout':0.0,"
 "'bos_token_id':151643,'eos_token_id':151645,'head_dim':128,'hidden_act':'silu',"
 "'hidden_size':4096,'initializer_range':0.02,'intermediate_size':12288,"
 "'max_position_embeddings':40960,'max_window_layers':36,'model_type':'qwen3',"
 "'num_attention_heads':32,'num_hidden_layers':36,'num_key_value_heads':8,"
 "'rms_norm_eps':1e-06,'rope_scaling':null,'rope_theta':1000000,'sliding_window':null,"
 "'tie_word_embeddings':false,'torch_dtype':'bfloat16','use_cache':true,"
 "'use_sliding_window':false,'vocab_size':151936}"},
{"Qwen3-30B-A3B", 30532122624,
 "{'architectures':['Qwen3MoeForCausalLM'],'attention_bias':false,'attention_dropout':0.0,"
 "'bos_token_id':151643,'decoder_sparse_step':1,'eos_token_id':151645,'head_dim':128,"
 "'hidden_act':'silu','hidden_size':2048,'initializer_range':0.02,'intermediate_size':6144,"
 "'max_position_embeddings':40960,'max_window_layers':48,'mlp_only_layers':[],"
 "'model_type':'qwen3_moe','moe_intermediate_size':768,'norm_topk_prob':true,"
 "'num_attention_heads':32,'num_experts':128,'num_experts_per_tok':8,'num_hidden_layers':48,"
 "'num_key_value_heads':4,'output_router_logits':false,'rms_norm_eps':1e-06,"
 "'rope_scaling':null,'rope_theta':1000000.0,'router_aux_loss_coef':0.001,"
 "'sliding_window':null,'tie_word_embeddings':false,'use_cache':true,"
 "'use_sliding_window':false,'vocab_size':151936}"},
{"Phi-3-mini-4k", 3821079552,
 "{'architectures':['Phi3ForCausalLM'],'attention_dropout':0.0,"
 "'auto_map':{'AutoConfig':'configuration_phi3.Phi3Config',"
 "'AutoModelForCausalLM':'modeling_phi3.Phi3ForCausalLM'},'bos_token_id':1,'embd_pdrop':0.0,"
 "'eos_token_id':32000,'hidden_act':'silu','hidden_size':3072,'initializer_range':0.02,"
 "'intermediate_size':8192,'max_position_embeddings':4096,'model_type':'phi3',"
 "'num_attention_heads':32,'num_hidden_layers':32,'num_key_value_heads':32,"
 "'original_max_position_embeddings':4096,'pad_token_id':32000,'resid_pdrop':0.0,"
 "'rms_norm_eps':1e-05,'rope_scaling':null,'rope_theta':10000.0,'sliding_window':2047,"
 "'tie_word_embeddings':false,'torch_dtype':'bfloat16','use_cache':true,"
 "'attention_bias':false,'vocab_size':32064}"},
};

/* The description of row i; JSON's quotes are written as apostrophes above. */
static struct arch *arch_published(size_t i)
{
    char text[2048];
    size_t n = strlen(published[i].config);

    assert_true(n < sizeof text);
    memcpy(text, published[i].config, n + 1);
    for (char *p = strchr(text, '\''); p != NULL; p = strchr(p, '\''))
        *p = '"';
    return arch_of(text);
}

TEST(published_configs_give_their_models)
{
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        struct arch *a = arch_published(i);
        struct params params = {0};
        struct ckpt_err err = {0};
        int64_t numel = 0;

        assert_int_equal(params_build(&params, a, NULL, &err), 0);
        for (size_t k = 0; k < params.n; k++)
            numel += params.item[k].numel;
        if (numel != published[i].numel || arch_numel(a) != numel)
            fail_msg("%s: %lld parameters, wanted %lld", published[i].name, (long long)numel,
                     (long long)published[i].numel);
        params_release(&params);
        arch_free(a);
    }
}
