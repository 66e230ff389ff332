//! Tensor names of GGUF as the names that the weights were published under.

/// The published name of a tensor of the llama family; others keep their own.
pub(super) fn published(name: &str) -> String {
    let whole = match name {
        "token_embd.weight" => "model.embed_tokens.weight",
        "output_norm.weight" => "model.norm.weight",
        "output.weight" => "lm_head.weight",
        _ => "",
    };
    if !whole.is_empty() {
        return whole.into();
    }
    let part = |rest: &str| {
        let (layer, part) = rest.split_once('.')?;
        let part = match part {
            "attn_norm.weight" => "input_layernorm.weight",
            "attn_q.weight" => "self_attn.q_proj.weight",
            "attn_k.weight" => "self_attn.k_proj.weight",
            "attn_v.weight" => "self_attn.v_proj.weight",
            "attn_output.weight" => "self_attn.o_proj.weight",
            "ffn_norm.weight" => "post_attention_layernorm.weight",
            "ffn_gate.weight" => "mlp.gate_proj.weight",
            "ffn_up.weight" => "mlp.up_proj.weight",
            "ffn_down.weight" => "mlp.down_proj.weight",
            _ => return None,
        };
        Some(format!("model.layers.{layer}.{part}"))
    };
    name.strip_prefix("blk.").and_then(part).unwrap_or_else(|| name.into())
}
